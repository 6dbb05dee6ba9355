// CUDA's built-in vector types with their sizes and alignments (CUDA C++ Programming Guide, table of vector types).
#pragma once
#include <cstdint>

#define CRUCIBLE_VECTORS(T, N, A2, A4)                                              \
    struct N##1 { T x; };                                                           \
    struct alignas(A2) N##2 { T x, y; };                                            \
    struct N##3 { T x, y, z; };                                                     \
    struct alignas(A4) N##4 { T x, y, z, w; };                                      \
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

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};
