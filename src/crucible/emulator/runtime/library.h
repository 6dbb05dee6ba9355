// Calls of NVIDIA's libraries, done by the host on the same memory: what they touch is looked at first.
#include "crucible/library.h"

extern "C" {
// The CPU's own BLAS, which comes with PyTorch.
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
            const float*, const int*, const float*, float*, const int*) __attribute__((weak));
void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*, const int*,
            const double*, const int*, const double*, double*, const int*) __attribute__((weak));
}

namespace crucible {

static void told(const LibraryCall& call, const char* kind, std::string detail, uintptr_t address, int error) {
    Fault fault = fault_here(kind, 0, std::move(detail), address);
    Dl_info info;
    if (dladdr(call.anchor, &info) && info.dli_fname) fault.anchor = info.dli_fname;
    fault.kernel = call.name;
    fault.line = call.line;
    fault.fatal = error;
    report(std::move(fault));
    if (error) sticky_error = last_error = error;
}

// Whether a library may touch a range as a kernel may; otherwise that is told as a kernel's fault is.
static bool may_touch(const LibraryCall& call, uintptr_t address, size_t size, bool write) {
    const uintptr_t offset = address - uintptr_t(memory.arena);
    const bool ours = memory.arena && offset < kArenaBytes;
    const Region* region = ours ? nullptr : memory.region_of(address);
    if (ours ? !valid_range(offset, size) : !region || address + size > region->hi) {
        size_t at = 0;
        while (ours && at < size && valid_range(offset + at, 1)) ++at;
        told(call, "out-of-bounds-global", format("%s %zu bytes", verb(write, false), size), address + at, 700);
        return false;
    }
    if (!write && (ours || !region->is_module))
        if (const uintptr_t at = poisoned(address, size))
            told(call, "uninitialised-global", "read of memory that nobody wrote", at, 0);
    return true;
}

static size_t size_of(Element element) {
    constexpr size_t sizes[] = {4, 8, 2, 2, 1, 4};
    return sizes[element];
}

static float from_bfloat16(uint16_t bits) {
    const uint32_t word = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
}

// To the nearest number of `kept` bits after the point, ties to even or, as cvt.rna does, away from zero.
static float rounded(float value, int kept, bool to_even) {
    uint32_t word;
    std::memcpy(&word, &value, 4);
    if ((word & 0x7f800000) == 0x7f800000) return value;
    const int gone = 23 - kept;
    const uint32_t half = 1u << (gone - 1);
    word += to_even ? half - 1 + (word >> gone & 1) : half;
    word &= ~((1u << gone) - 1);
    std::memcpy(&value, &word, 4);
    return value;
}

static uint16_t to_bfloat16(float value) {
    if (value != value) return 0x7fff;
    value = rounded(value, 7, true);
    uint32_t word;
    std::memcpy(&word, &value, 4);
    return uint16_t(word >> 16);
}

static double loaded(const void* at, Element element) {
    switch (element) {
        case kFloat: return *static_cast<const float*>(at);
        case kDouble: return *static_cast<const double*>(at);
        case kHalf: return double(float(*static_cast<const _Float16*>(at)));
        case kBfloat16: return from_bfloat16(*static_cast<const uint16_t*>(at));
        case kInt8: return *static_cast<const int8_t*>(at);
        case kInt32: return *static_cast<const int32_t*>(at);
    }
    return 0;
}

static void store(void* at, Element element, double value) {
    switch (element) {
        case kFloat: *static_cast<float*>(at) = float(value); break;
        case kDouble: *static_cast<double*>(at) = value; break;
        case kHalf: *static_cast<_Float16*>(at) = _Float16(float(value)); break;
        case kBfloat16: *static_cast<uint16_t*>(at) = to_bfloat16(float(value)); break;
        case kInt8: *static_cast<int8_t*>(at) = int8_t(std::clamp(value, -128.0, 127.0)); break;
        case kInt32: *static_cast<int32_t*>(at) = int32_t(value); break;
    }
}

static char* place_of(const Matrix& matrix, int64_t i, int64_t j) {
    return static_cast<char*>(matrix.data) + (i * matrix.row + j * matrix.column) * int64_t(size_of(matrix.element));
}

static bool is_stored(const Matrix& matrix, int64_t i, int64_t j) {
    if (matrix.unit && i == j) return false;
    return matrix.stored == kWhole || (matrix.stored == kLower ? i >= j : i <= j);
}

// Every stored element, as long as `visit` goes on.
template <class F>
static bool each_stored(const Matrix& matrix, int64_t rows, int64_t columns, const F& visit) {
    for (int64_t j = 0; j < columns; ++j)
        for (int64_t i = 0; i < rows; ++i)
            if (is_stored(matrix, i, j) && !visit(i, j)) return false;
    return true;
}

static bool may_touch(const LibraryCall& call, const Matrix& matrix, int64_t rows, int64_t columns, bool write) {
    const size_t size = size_of(matrix.element);
    if (matrix.stored != kWhole || matrix.unit)
        return each_stored(matrix, rows, columns, [&](int64_t i, int64_t j) { return may_touch(call, uintptr_t(place_of(matrix, i, j)), size, write); });
    const bool down = matrix.row == 1;  // whole columns at once, or whole rows
    const int64_t outer = down ? columns : rows, inner = down ? rows : columns;
    const bool dense = down || matrix.column == 1;
    for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < (dense ? 1 : inner); ++i) {
            const char* at = down ? place_of(matrix, i, o) : place_of(matrix, o, i);
            if (!may_touch(call, uintptr_t(at), dense ? size * size_t(inner) : size, write)) return false;
        }
    return true;
}

static float as_taken(float value, OperandRounding rounding) {
    switch (rounding) {
        case kToTf32: return rounded(value, 10, false);
        case kToHalf: return float(_Float16(value));
        case kToBfloat16: return rounded(value, 7, true);
        default: return value;
    }
}

// Column by column, the triangle that is not stored filled in.
template <class T>
static std::vector<T> gathered(const Matrix& matrix, int64_t rows, int64_t columns, OperandRounding rounding) {
    std::vector<T> out(size_t(rows * columns), T(0));
    const bool rounds = rounding != kAsTheyAre && matrix.element == kFloat;
    each_stored(matrix, rows, columns, [&](int64_t i, int64_t j) {
        T value = T(loaded(place_of(matrix, i, j), matrix.element));
        if (rounds) value = T(as_taken(float(value), rounding));
        out[size_t(i + j * rows)] = value;
        if (matrix.symmetric) out[size_t(j + i * rows)] = value;
        return true;
    });
    for (int64_t i = 0; matrix.unit && i < rows; ++i) out[size_t(i + i * rows)] = T(1);
    return out;
}

static void blas(int m, int n, int k, const float* a, const float* b, float* out) {
    const float one = 1, zero = 0;
    sgemm_("N", "N", &m, &n, &k, &one, a, &m, b, &k, &zero, out, &m);
}
static void blas(int m, int n, int k, const double* a, const double* b, double* out) {
    const double one = 1, zero = 0;
    dgemm_("N", "N", &m, &n, &k, &one, a, &m, b, &k, &zero, out, &m);
}

template <class T>
static std::vector<T> multiplied(const Product& of) {
    const std::vector<T> a = gathered<T>(of.a, of.m, of.k, of.rounding), b = gathered<T>(of.b, of.k, of.n, of.rounding);
    std::vector<T> out(size_t(of.m * of.n), T(0));
    if (of.k == 0) return out;
    if (dgemm_ && sgemm_) {
        blas(int(of.m), int(of.n), int(of.k), a.data(), b.data(), out.data());
        return out;
    }
    for (int64_t j = 0; j < of.n; ++j)
        for (int64_t l = 0; l < of.k; ++l)
            for (int64_t i = 0; i < of.m; ++i) out[size_t(i + j * of.m)] += a[size_t(i + l * of.m)] * b[size_t(l + j * of.k)];
    return out;
}

template <class T>
static void finish(const Product& of) {
    std::vector<T> sums;
    if (of.alpha != 0) sums = multiplied<T>(of);
    each_stored(of.d, of.m, of.n, [&](int64_t i, int64_t j) {
        T value = of.alpha != 0 ? T(of.alpha) * sums[size_t(i + j * of.m)] : T(0);
        if (of.beta != 0) value += T(of.beta) * T(loaded(place_of(of.c, i, j), of.c.element));
        store(place_of(of.d, i, j), of.d.element, double(value));
        return true;
    });
}

static void note_given(const LibraryCall& call, const Matrix& matrix, const char* parameter) {
    if (const Allocation* allocation = memory.owns(matrix.data) ? memory.nearest(uintptr_t(matrix.data)) : nullptr)
        given_to[uintptr_t(allocation->base)] = Given{call.name, parameter, "element", size_of(matrix.element)};
}

static int product(const LibraryCall& call, const Product& of) {
    launched.insert(call.name);
    if (sticky_error) return last_error = sticky_error;
    const bool reads = of.alpha != 0;
    if (reads && !(may_touch(call, of.a, of.m, of.k, false) && may_touch(call, of.b, of.k, of.n, false))) return 700;
    if (of.beta != 0 && !may_touch(call, of.c, of.m, of.n, false)) return 700;
    if (!may_touch(call, of.d, of.m, of.n, true)) return 700;
    note_given(call, of.d, "C");
    const bool wide = of.d.element == kDouble || of.d.element == kInt32;  // sums of bytes are exact in double
    if (wide) finish<double>(of);
    else finish<float>(of);
    return 0;
}

}  // namespace crucible

extern "C" {
int crucible_product(const crucible::LibraryCall* call, const crucible::Product* of) { return crucible::product(*call, *of); }
int crucible_library_access(const crucible::LibraryCall* call, const void* at, size_t bytes, int64_t step, int64_t count, int write) {
    crucible::launched.insert(call->name);
    if (crucible::sticky_error) return crucible::last_error = crucible::sticky_error;
    for (int64_t i = 0; i < count; ++i)
        if (!crucible::may_touch(*call, uintptr_t(at) + uintptr_t(i * step), bytes, write)) return 700;
    return 0;
}
}
