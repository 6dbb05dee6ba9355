// nvcuda::wmma: fragments of a warp, whose layout is our own as it is NVIDIA's on a GPU.
#pragma once
#include "mma.h"

namespace nvcuda::wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision { struct tf32 {}; }

// The combinations that CUDA has (CUDA C++ Programming Guide, "Element Types and Matrix Sizes").
template <class T, int M, int N, int K>
constexpr bool exists() {
    if constexpr (std::is_same_v<T, precision::tf32>) return M == 16 && N == 16 && K == 8;
    else if constexpr (std::is_same_v<T, double>) return M == 8 && N == 8 && K == 4;
    else return K == 16 && ((M == 16 && N == 16) || (M == 32 && N == 8) || (M == 8 && N == 32));
}
template <class T> inline constexpr bool multiplies = crucible::is_among<T, __half, __nv_bfloat16, precision::tf32, double, signed char, unsigned char>;
template <class T> inline constexpr bool accumulates = crucible::is_among<T, __half, float, double, int>;

// Lane l holds elements l, l + 32, ...: the real layout is unspecified, and programs may not depend on it.
template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
    static constexpr bool is_accumulator = std::is_same_v<Use, accumulator>;
    static_assert(is_accumulator ? accumulates<T> : multiplies<T>, "wmma has no fragment of this type");
    static_assert(is_accumulator || exists<T, M, N, K>(), "wmma has no fragment of this shape and type");
    static constexpr int rows = std::is_same_v<Use, matrix_b> ? K : M, columns = std::is_same_v<Use, matrix_a> ? K : N;
    static constexpr int num_elements = rows * columns / 32;
    static constexpr int num_storage_elements = num_elements;
    using element_type = std::conditional_t<std::is_same_v<T, precision::tf32>, float, T>;
    using storage_element_type = element_type;
    element_type x[num_elements];
};
template <class U, int M, int N, int K, class T, class L>
CRUCIBLE_INLINE void fill_fragment(fragment<U, M, N, K, T, L>& f, const typename fragment<U, M, N, K, T, L>::element_type& v) { for (auto& e : f.x) e = v; }
template <class F, class T>
CRUCIBLE_INLINE void load_elements(F& f, const T* from, unsigned stride, bool row) {
    crucible::warp(crucible::kSync, 0xffffffffu);
    for (int i = 0; i < F::num_elements; ++i) {
        const int e = i * 32 + int(crucible::lane()), r = e / F::columns, c = e % F::columns;
        f.x[i] = from[row ? size_t(r) * stride + c : size_t(c) * stride + r];
    }
}
template <class U, int M, int N, int K, class T, class L>
CRUCIBLE_INLINE void load_matrix_sync(fragment<U, M, N, K, T, L>& f, const typename fragment<U, M, N, K, T, L>::element_type* from, unsigned stride) {
    static_assert(!std::is_void_v<L>, "an accumulator is loaded with its layout");
    load_elements(f, from, stride, std::is_same_v<L, row_major>);
}
template <int M, int N, int K, class T>
CRUCIBLE_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* from, unsigned stride, layout_t layout) { load_elements(f, from, stride, layout == mem_row_major); }
template <int M, int N, int K, class T>
CRUCIBLE_INLINE void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout) {
    using F = fragment<accumulator, M, N, K, T>;
    for (int i = 0; i < F::num_elements; ++i) {
        const int e = i * 32 + int(crucible::lane()), r = e / F::columns, c = e % F::columns;
        to[layout == mem_row_major ? size_t(r) * stride + c : size_t(c) * stride + r] = f.x[i];
    }
    crucible::warp(crucible::kSync, 0xffffffffu);
}

template <class T> inline constexpr int kind_of = sizeof(T) == 1 ? 3 : 0;
template <> inline constexpr int kind_of<precision::tf32> = 1;
template <> inline constexpr int kind_of<double> = 2;

// An element in the type that products are summed in.
template <class T> inline CRUCIBLE_PLAIN auto wide_value(const T& v) { return v; }
template <> inline CRUCIBLE_PLAIN auto wide_value(const __half& v) { return crucible::HalfRule::to(v.__x); }
template <> inline CRUCIBLE_PLAIN auto wide_value(const __nv_bfloat16& v) { return crucible::Bfloat16Rule::to(v.__x); }
template <> inline CRUCIBLE_PLAIN auto wide_value(const signed char& v) { return int(v); }
template <> inline CRUCIBLE_PLAIN auto wide_value(const unsigned char& v) { return int(v); }
template <class F, class T>
inline CRUCIBLE_PLAIN auto element_of(const crucible::Everyone& all, int e) {
    const auto v = wide_value(reinterpret_cast<const F*>(all.at[e % 32])->x[e / 32]);
    if constexpr (std::is_same_v<T, precision::tf32>) return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, v) & 0xffffe000u);
    else return v;
}
template <class D, class V>
inline CRUCIBLE_PLAIN D narrow_value(V v) {
    if constexpr (std::is_same_v<D, __half>) return __builtin_bit_cast(__half, crucible::HalfRule::from(v));
    else return D(v);
}
template <int M, int N, int K, class A, class LA, class B, class LB, class C, class D>
inline CRUCIBLE_PLAIN void mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, A, LA>& a,
                                    const fragment<matrix_b, M, N, K, B, LB>& b, const fragment<accumulator, M, N, K, C>& c, bool clamps = false) {
    static_assert(std::is_same_v<A, B>, "wmma multiplies fragments of one type");
    static_assert(std::is_same_v<A, double> ? std::is_same_v<C, double> && std::is_same_v<D, double>
                  : sizeof(A) == 1 && std::is_integral_v<A> ? std::is_same_v<C, int> && std::is_same_v<D, int>
                  : crucible::is_among<C, float, __half> && crucible::is_among<D, float, __half> && (std::is_same_v<A, __half> || (std::is_same_v<C, float> && std::is_same_v<D, float>)),
                  "wmma has no product of these types");
    using FA = fragment<matrix_a, M, N, K, A, LA>;
    using FB = fragment<matrix_b, M, N, K, B, LB>;
    crucible::Everyone as, bs;
    crucible_gather(0xffffffffu, uint64_t(&a), as.at);
    crucible_gather(0xffffffffu, uint64_t(&b), bs.at);
    const int lane = crucible::plain_lane();
    if (!lane) crucible_multiplied(kind_of<A>, 2 * M * N * K);
    D out[fragment<accumulator, M, N, K, D>::num_elements];
    for (int i = 0; i < fragment<accumulator, M, N, K, D>::num_elements; ++i) {
        const int e = i * 32 + lane, r = e / N, q = e % N;
        auto sum = crucible::widened(c.x[i]);
        for (int k = 0; k < K; ++k) sum += element_of<FA, A>(as, r * K + k) * element_of<FB, B>(bs, k * N + q);
        if constexpr (std::is_same_v<D, int>)
            if (clamps) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
        out[i] = narrow_value<D>(sum);
    }
    crucible_warp(crucible::kSync, 0xffffffffu, -1, 0, 4);
    for (int i = 0; i < fragment<accumulator, M, N, K, D>::num_elements; ++i) d.x[i] = out[i];
}
CRUCIBLE_INLINE float __float_to_tf32(float v) { return __builtin_bit_cast(float, crucible::to_tf32(v)); }
}  // namespace nvcuda::wmma
