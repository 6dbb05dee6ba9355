// CUDA's built-in vector types with their sizes and alignments (CUDA C++ Programming Guide, table of vector types).
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

// clang copies a trivial struct member by member and looks at no alignment: a last member of no size does.
#if defined(__clang__) && defined(__SANITIZE_THREAD__)
extern "C" void crucible_misaligned(const void*, size_t align, int write);
namespace crucible {
template <size_t A, class>  // of which struct: two of one type would need two addresses
struct Watched {
    Watched() = default;
    inline __attribute__((always_inline)) Watched(const Watched& from) { check(&from, 0); }
    inline __attribute__((always_inline)) Watched& operator=(const Watched& from) {
        check(&from, 0);
        check(this, 1);
        return *this;
    }
    static inline __attribute__((always_inline)) void check(const void* at, int write) {
        if (uintptr_t(at) % A) crucible_misaligned(at, A, write);
    }
};
}
#define CRUCIBLE_WATCH(N, A) [[no_unique_address]] ::crucible::Watched<A, struct N> crucible_watched;
#else
#define CRUCIBLE_WATCH(N, A)
#endif

#define CRUCIBLE_VECTORS(T, N, A2, A4)                                              \
    struct N##1 { T x; };                                                           \
    struct alignas(A2) N##2 { T x, y; CRUCIBLE_WATCH(N##2, A2) };                         \
    struct N##3 { T x, y, z; };                                                     \
    struct alignas(A4) N##4 { T x, y, z, w; CRUCIBLE_WATCH(N##4, A4) };                   \
    inline N##1 make_##N##1(T x) { return {x}; }                                    \
    inline N##2 make_##N##2(T x, T y) { return {x, y}; }                            \
    inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }                    \
    inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CRUCIBLE_VECTORS(signed char, char, 2, 4)
CRUCIBLE_VECTORS(unsigned char, uchar, 2, 4)
CRUCIBLE_VECTORS(short, short, 4, 8)
CRUCIBLE_VECTORS(unsigned short, ushort, 4, 8)
CRUCIBLE_VECTORS(int, int, 8, 16)
CRUCIBLE_VECTORS(unsigned int, uint, 8, 16)
CRUCIBLE_VECTORS(long, long, 16, 16)
CRUCIBLE_VECTORS(unsigned long, ulong, 16, 16)
CRUCIBLE_VECTORS(long long, longlong, 16, 16)
CRUCIBLE_VECTORS(unsigned long long, ulonglong, 16, 16)
CRUCIBLE_VECTORS(float, float, 8, 16)
CRUCIBLE_VECTORS(double, double, 16, 16)
#undef CRUCIBLE_VECTORS

namespace crucible {
// Types whose bytes are all there is to them.
#define CRUCIBLE_VECTORS(N) || std::is_same_v<T, N##2> || std::is_same_v<T, N##4>
template <class T>
constexpr bool is_plain = std::is_trivially_copyable_v<T> CRUCIBLE_VECTORS(char) CRUCIBLE_VECTORS(uchar) CRUCIBLE_VECTORS(short)
    CRUCIBLE_VECTORS(ushort) CRUCIBLE_VECTORS(int) CRUCIBLE_VECTORS(uint) CRUCIBLE_VECTORS(long) CRUCIBLE_VECTORS(ulong)
    CRUCIBLE_VECTORS(longlong) CRUCIBLE_VECTORS(ulonglong) CRUCIBLE_VECTORS(float) CRUCIBLE_VECTORS(double);
#undef CRUCIBLE_VECTORS
}

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};
