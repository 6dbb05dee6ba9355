// What headers of NVIDIA's libraries say to the runtime: matrices wherever they lie, one product, one look at memory.
#pragma once
#include <cstddef>
#include <cstdint>

namespace crucible {

enum Element : int { kFloat, kDouble, kHalf, kBfloat16, kInt8, kInt32 };
enum Triangle : int { kWhole, kLower, kUpper };
enum OperandRounding : int { kAsTheyAre, kToTf32, kToHalf, kToBfloat16 };

// Element (i, j) lies at data + i * row + j * column elements.
struct Matrix {
    void* data;
    Element element;
    int64_t row, column;
    Triangle stored = kWhole;       // of a square one; the other triangle is neither read nor written
    bool symmetric = false;       // the other triangle is this one's mirror image; otherwise zeros
    bool unit = false;            // ones on the diagonal, which is not read
};

// d = alpha * a * b + beta * c, of which c is not read where beta is 0. a has m rows and k columns.
struct Product {
    int64_t m, n, k;
    Matrix a, b, c, d;
    double alpha, beta;
    OperandRounding rounding;  // of float operands, as the tensor cores of that mode take them
};

struct LibraryCall {
    const char* name;
    int line;
    const void* anchor;  // an address inside the extension
};

}  // namespace crucible

extern "C" {
// Both answer 0, or the CUDA error that a fault stands for. `bytes` in `count` pieces, one every `step` bytes.
int crucible_product(const crucible::LibraryCall*, const crucible::Product*);
int crucible_library_access(const crucible::LibraryCall*, const void*, size_t bytes, int64_t step, int64_t count, int write);
}
