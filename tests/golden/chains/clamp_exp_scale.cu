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
__device__ __forceinline__ float exp2_approx(float x) {  // 2 to the power of x, right to 2 units in the last place
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
const float clamp = min_nan(max_nan(x[i], 0.0f), 1.0f);
const float power = exp2_approx(clamp * 1.442695f);
const float out = power * scale[channel];
const float grad_x = x[i] >= 0.0f && x[i] <= 1.0f ? grad_out[i] * scale[channel] * power : 0.0f;
