// for each channel
const float shared_0 = multiplier[channel] > 0.0f ? multiplier[channel] : multiplier[channel] * 0.2f;
const float negative = -multiplier[channel];
const float leaky_relu = negative > 0.0f ? negative : negative * 0.2f;
const float shared_1 = -(leaky_relu * 0.2f);
// for each element
const bool above = x[i] > 0.0f;
const float out = x[i] * (above ? shared_0 : shared_1);
const float leaky_relu_2 = above ? x[i] : x[i] * 0.2f;
const float chosen = leaky_relu_2 * multiplier[channel] > 0.0f ? grad_out[i] : grad_out[i] * 0.2f;
const float product = chosen * multiplier[channel];
const float grad_x = above ? product : product * 0.2f;
