__device__ __forceinline__ float max_nan(float a, float b) {  // the larger; NaN if either is, unlike fmaxf
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}
__device__ __forceinline__ float min_nan(float a, float b) {  // the smaller; NaN if either is, unlike fminf
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
}
const float clamp = min_nan(max_nan(x[i], 0.0f), 1.0f);
// exp on [0, 1]: off by at most 5e-07 (proven, rounding included)
float exp = 0.0021505777f;
exp = fmaf(exp, clamp, 0.0074107633f);
exp = fmaf(exp, clamp, 0.04216171f);
exp = fmaf(exp, clamp, 0.16654855f);
exp = fmaf(exp, clamp, 0.5000102f);
exp = fmaf(exp, clamp, 0.9999999f);
exp = fmaf(exp, clamp, 1.0f);
const float out = exp * scale[channel];
const float grad_x = x[i] >= 0.0f && x[i] <= 1.0f ? grad_out[i] * scale[channel] * exp : 0.0f;
