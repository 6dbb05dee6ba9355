// Eight-bit floating point: __nv_fp8_e4m3 and __nv_fp8_e5m2, their pairs and fours, and the conversions.
#pragma once
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>

#include "half_functions.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace crucible {
inline float fp8_value(uint8_t bits, __nv_fp8_interpretation_t form) {
    return form == __NV_E4M3 ? c10::detail::fp8e4m3fn_to_fp32_value(bits) : c10::detail::fp8e5m2_to_fp32_value(bits);
}
inline uint8_t fp8_bits(float v, __nv_saturation_t saturation, __nv_fp8_interpretation_t form) {
    const float most = form == __NV_E4M3 ? 448.0f : 57344.0f;
    if (v != v) return 0x7f;
    if (saturation == __NV_SATFINITE) v = v > most ? most : v < -most ? -most : v;
    return form == __NV_E4M3 ? c10::detail::fp8e4m3fn_from_fp32_value(v) : c10::detail::fp8e5m2_from_fp32_value(v);
}
template <__nv_fp8_interpretation_t Form, class Torch>
struct Fp8 {
    __nv_fp8_storage_t __x;
    Fp8() = default;
    explicit Fp8(float v) : __x(fp8_bits(v, __NV_SATFINITE, Form)) {}
    explicit Fp8(double v) : Fp8(odd(v)) {}
    explicit Fp8(__half v) : Fp8(v.value()) {}
    explicit Fp8(__nv_bfloat16 v) : Fp8(v.value()) {}
    explicit Fp8(int v) : Fp8(odd(double(v))) {}
    explicit Fp8(unsigned v) : Fp8(odd(double(v))) {}
    explicit operator float() const { return fp8_value(__x, Form); }
    explicit operator double() const { return float(*this); }
    explicit operator __half() const { return __half::from(float(*this)); }
    explicit operator __nv_bfloat16() const { return __nv_bfloat16::from(float(*this)); }
    explicit operator int() const { return saturated_to<int>(std::trunc(float(*this))); }
};
template <__nv_fp8_interpretation_t Form>
struct alignas(2) Fp8x2 {
    __nv_fp8x2_storage_t __x;
    Fp8x2() = default;
    Fp8x2(float low, float high) : __x(uint16_t(fp8_bits(low, __NV_SATFINITE, Form) | fp8_bits(high, __NV_SATFINITE, Form) << 8)) {}
    explicit Fp8x2(float2 v) : Fp8x2(v.x, v.y) {}
    explicit Fp8x2(__half2 v) : Fp8x2(v.x.value(), v.y.value()) {}
    explicit Fp8x2(__nv_bfloat162 v) : Fp8x2(v.x.value(), v.y.value()) {}
    explicit operator float2() const { return {fp8_value(uint8_t(__x), Form), fp8_value(uint8_t(__x >> 8), Form)}; }
    explicit operator __half2() const { const float2 v(*this); return __half2(__half::from(v.x), __half::from(v.y)); }
};
template <__nv_fp8_interpretation_t Form>
struct alignas(4) Fp8x4 {
    __nv_fp8x4_storage_t __x;
    Fp8x4() = default;
    explicit Fp8x4(float4 v) : __x(Fp8x2<Form>(v.x, v.y).__x | unsigned(Fp8x2<Form>(v.z, v.w).__x) << 16) {}
    explicit operator float4() const {
        return {fp8_value(uint8_t(__x), Form), fp8_value(uint8_t(__x >> 8), Form), fp8_value(uint8_t(__x >> 16), Form), fp8_value(uint8_t(__x >> 24), Form)};
    }
};
}  // namespace crucible

typedef crucible::Fp8<__NV_E4M3, c10::Float8_e4m3fn> __nv_fp8_e4m3;
typedef crucible::Fp8<__NV_E5M2, c10::Float8_e5m2> __nv_fp8_e5m2;
typedef crucible::Fp8x2<__NV_E4M3> __nv_fp8x2_e4m3;
typedef crucible::Fp8x2<__NV_E5M2> __nv_fp8x2_e5m2;
typedef crucible::Fp8x4<__NV_E4M3> __nv_fp8x4_e4m3;
typedef crucible::Fp8x4<__NV_E5M2> __nv_fp8x4_e5m2;

CRUCIBLE_INLINE __nv_fp8_storage_t __nv_cvt_float_to_fp8(float v, __nv_saturation_t s, __nv_fp8_interpretation_t f) { return crucible::fp8_bits(v, s, f); }
CRUCIBLE_INLINE __nv_fp8_storage_t __nv_cvt_double_to_fp8(double v, __nv_saturation_t s, __nv_fp8_interpretation_t f) { return crucible::fp8_bits(crucible::odd(v), s, f); }
CRUCIBLE_INLINE __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw v, __nv_saturation_t s, __nv_fp8_interpretation_t f) { return crucible::fp8_bits(__half(v).value(), s, f); }
CRUCIBLE_INLINE __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw v, __nv_saturation_t s, __nv_fp8_interpretation_t f) { return crucible::fp8_bits(__nv_bfloat16(v).value(), s, f); }
CRUCIBLE_INLINE __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t s, __nv_fp8_interpretation_t f) {
    return __nv_fp8x2_storage_t(crucible::fp8_bits(v.x, s, f) | crucible::fp8_bits(v.y, s, f) << 8);
}
CRUCIBLE_INLINE __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw v, __nv_saturation_t s, __nv_fp8_interpretation_t f) {
    return __nv_cvt_float2_to_fp8x2(__half22float2(__half2(v)), s, f);
}
CRUCIBLE_INLINE __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw v, __nv_saturation_t s, __nv_fp8_interpretation_t f) {
    return __nv_cvt_float2_to_fp8x2(__bfloat1622float2(__nv_bfloat162(v)), s, f);
}
CRUCIBLE_INLINE __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t v, __nv_fp8_interpretation_t f) { return __half::from(crucible::fp8_value(v, f)); }
CRUCIBLE_INLINE __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t v, __nv_fp8_interpretation_t f) {
    return __half2(__half::from(crucible::fp8_value(uint8_t(v), f)), __half::from(crucible::fp8_value(uint8_t(v >> 8), f)));
}
