// cuBLAS: handles, and the calls of its three levels that are one product or one pass over vectors. Matrices lie column
// by column. What each call reads and writes is looked at as a kernel's accesses are; the products are the CPU's BLAS.
#pragma once
#include <cmath>

#include "../library_types.h"
#include "half.h"
#include "library.h"
#include "runtime_api.h"

enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3, CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11, CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15, CUBLAS_STATUS_LICENSE_ERROR = 16
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 };
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1, CUBLAS_FILL_MODE_FULL = 2 };
enum cublasDiagType_t { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 };
enum cublasSideMode_t { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 };
enum cublasAtomicsMode_t { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 };
enum cublasMath_t {
    CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};
enum cublasComputeType_t {
    CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_16F_PEDANTIC = 65, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_64F_PEDANTIC = 71, CUBLAS_COMPUTE_32I = 72, CUBLAS_COMPUTE_32I_PEDANTIC = 73,
    CUBLAS_COMPUTE_32F_FAST_16F = 74, CUBLAS_COMPUTE_32F_FAST_16BF = 75, CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99, CUBLAS_GEMM_DFALT_TENSOR_OP = 99 };
#define CUBLAS_VERSION 130000
#define CUBLAS_VER_MAJOR 13

struct cublasContext {
    cudaStream_t stream = nullptr;
    int math = CUBLAS_DEFAULT_MATH;
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};
typedef cublasContext* cublasHandle_t;

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) { return handle ? (*handle = new cublasContext, CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_INVALID_VALUE; }
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) { return handle ? (delete handle, CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) { return handle ? (handle->stream = stream, CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream) { return handle ? (*stream = handle->stream, CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) { return handle ? (handle->math = mode, CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) { return handle ? (*mode = cublasMath_t(handle->math), CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) { return handle ? (handle->pointers = mode, CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasGetPointerMode(cublasHandle_t handle, cublasPointerMode_t* mode) { return handle ? (*mode = handle->pointers, CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t) { return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void*, size_t) { return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasGetVersion(cublasHandle_t handle, int* version) { return handle ? (*version = CUBLAS_VERSION, CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_NOT_INITIALIZED; }
inline const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}
inline const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

namespace crucible::blas {
static const char here = 0;  // in this extension

inline Element element_of(const float*) { return kFloat; }
inline Element element_of(const double*) { return kDouble; }
inline Element element_of(const __half*) { return kHalf; }
inline Element element_of(const __nv_bfloat16*) { return kBfloat16; }

inline bool element_of(cudaDataType type, Element* element) {
    switch (type) {
        case CUDA_R_32F: *element = kFloat; return true;
        case CUDA_R_64F: *element = kDouble; return true;
        case CUDA_R_16F: *element = kHalf; return true;
        case CUDA_R_16BF: *element = kBfloat16; return true;
        case CUDA_R_8I: *element = kInt8; return true;
        case CUDA_R_32I: *element = kInt32; return true;
        default: return false;
    }
}

// The product that one GEMM of column-major matrices is.
struct Gemm {
    cublasOperation_t ta, tb;
    int64_t m, n, k, lda, ldb, ldc;
    Element a, b, c;
    double alpha, beta;
    OperandRounding rounding;

    bool valid() const {
        const bool sizes = m >= 0 && n >= 0 && k >= 0, first = lda >= std::max<int64_t>(1, ta == CUBLAS_OP_N ? m : k);
        return sizes && first && ldb >= std::max<int64_t>(1, tb == CUBLAS_OP_N ? k : n) && ldc >= std::max<int64_t>(1, m);
    }
    static Matrix operand(const void* data, Element element, cublasOperation_t how, int64_t ld) {
        const bool plain = how == CUBLAS_OP_N;
        return {const_cast<void*>(data), element, plain ? 1 : ld, plain ? ld : 1};
    }
    cublasStatus_t operator()(const LibraryCall& call, const void* pa, const void* pb, void* pc) const {
        if (!m || !n) return CUBLAS_STATUS_SUCCESS;
        const Matrix out{pc, c, 1, ldc};
        const Product product{m, n, k, operand(pa, a, ta, lda), operand(pb, b, tb, ldb), out, out, alpha, beta, rounding};
        return crucible_product(&call, &product) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
    }
};

inline OperandRounding rounding_of(cublasHandle_t handle) {
    switch (handle->math & 15) {
        case CUBLAS_TF32_TENSOR_OP_MATH: return kToTf32;
        case CUBLAS_TENSOR_OP_MATH: return kToHalf;
        default: return kAsTheyAre;
    }
}
inline OperandRounding rounding_of(cublasHandle_t handle, int compute) {
    switch (compute) {
        case CUBLAS_COMPUTE_32F_FAST_TF32: return kToTf32;
        case CUBLAS_COMPUTE_32F_FAST_16F: return kToHalf;
        case CUBLAS_COMPUTE_32F_FAST_16BF: return kToBfloat16;
        case CUBLAS_COMPUTE_32F: return rounding_of(handle);
        default: return kAsTheyAre;
    }
}
inline double scale(const void* at, int compute) {
    switch (compute) {
        case CUBLAS_COMPUTE_64F: case CUBLAS_COMPUTE_64F_PEDANTIC: return *static_cast<const double*>(at);
        case CUBLAS_COMPUTE_32I: case CUBLAS_COMPUTE_32I_PEDANTIC: return *static_cast<const int*>(at);
        case CUBLAS_COMPUTE_16F: case CUBLAS_COMPUTE_16F_PEDANTIC: return double(static_cast<const __half*>(at)->value());
        default: return *static_cast<const float*>(at);
    }
}
inline double scale(const __half* at) { return double(at->value()); }
template <class T> double scale(const T* at) { return double(*at); }
// CUDA 10's callers name the type of the data where CUDA 11's name what is computed in.
inline int compute_of(cublasComputeType_t compute) { return compute; }
inline int compute_of(cudaDataType type) {
    switch (type) {
        case CUDA_R_16F: return CUBLAS_COMPUTE_16F;
        case CUDA_R_64F: return CUBLAS_COMPUTE_64F;
        case CUDA_R_32I: return CUBLAS_COMPUTE_32I;
        default: return CUBLAS_COMPUTE_32F;
    }
}

// All the products of a batch; `at` gives the three places of each.
template <class F>
cublasStatus_t batch(cublasHandle_t handle, const LibraryCall& call, const Gemm& gemm, int64_t count, const F& at) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!gemm.valid() || count < 0) return CUBLAS_STATUS_INVALID_VALUE;
    for (int64_t i = 0; i < count; ++i) {
        const auto [a, b, c] = at(i);
        if (const cublasStatus_t status = gemm(call, a, b, c)) return status;
    }
    return CUBLAS_STATUS_SUCCESS;
}
struct Places { const void *a, *b; void* c; };
inline size_t bytes_of(Element element) { return element == kDouble ? 8 : element == kInt8 ? 1 : element == kHalf || element == kBfloat16 ? 2 : 4; }
inline auto strided(const Gemm& gemm, const void* a, int64_t sa, const void* b, int64_t sb, void* c, int64_t sc) {
    return [=, &gemm](int64_t i) {
        return Places{static_cast<const char*>(a) + i * sa * int64_t(bytes_of(gemm.a)), static_cast<const char*>(b) + i * sb * int64_t(bytes_of(gemm.b)),
                      static_cast<char*>(c) + i * sc * int64_t(bytes_of(gemm.c))};
    };
}

template <class T>
cublasStatus_t gemm(const char* name, int line, cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n, int64_t k, const T* alpha,
                    const T* a, int64_t lda, int64_t sa, const T* b, int64_t ldb, int64_t sb, const T* beta, T* c, int64_t ldc, int64_t sc, int64_t count) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    const Element e = element_of(a);
    const Gemm one{ta, tb, m, n, k, lda, ldb, ldc, e, e, e, scale(alpha), scale(beta), rounding_of(handle)};
    return batch(handle, LibraryCall{name, line, &here}, one, count, strided(one, a, sa, b, sb, c, sc));
}
template <class T>
cublasStatus_t gemm_by_pointers(const char* name, int line, cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* alpha,
                                const T* const* a, int lda, const T* const* b, int ldb, const T* beta, T* const* c, int ldc, int count) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    const Element e = element_of((const T*)nullptr);
    const Gemm one{ta, tb, m, n, k, lda, ldb, ldc, e, e, e, scale(alpha), scale(beta), rounding_of(handle)};
    return batch(handle, LibraryCall{name, line, &here}, one, count, [=](int64_t i) { return Places{a[i], b[i], c[i]}; });
}
inline bool mixed(cublasHandle_t handle, Gemm* one, const void* alpha, cudaDataType at, cudaDataType bt, const void* beta, cudaDataType ct, int compute) {
    if (!element_of(at, &one->a) || !element_of(bt, &one->b) || !element_of(ct, &one->c)) return false;
    one->alpha = scale(alpha, compute);
    one->beta = scale(beta, compute);
    one->rounding = rounding_of(handle, compute);
    return true;
}
template <class C>
cublasStatus_t gemm_ex(const char* name, int line, cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha,
                       const void* a, cudaDataType at, int lda, int64_t sa, const void* b, cudaDataType bt, int ldb, int64_t sb, const void* beta, void* c,
                       cudaDataType ct, int ldc, int64_t sc, int64_t count, C compute) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    Gemm one{ta, tb, m, n, k, lda, ldb, ldc};
    if (!mixed(handle, &one, alpha, at, bt, beta, ct, compute_of(compute))) return CUBLAS_STATUS_NOT_SUPPORTED;
    return batch(handle, LibraryCall{name, line, &here}, one, count, strided(one, a, sa, b, sb, c, sc));
}

// A vector of n elements as a matrix of one column; a negative increment starts at the other end.
template <class T>
Matrix column(const T* x, int64_t n, int64_t step) {
    return {const_cast<T*>(x) + (step < 0 ? (1 - n) * step : 0), element_of(x), step, step};
}
inline cublasStatus_t done(const LibraryCall& call, const Product& product) {
    return crucible_product(&call, &product) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t gemv(const char* name, int line, cublasHandle_t handle, cublasOperation_t how, int m, int n, const T* alpha, const T* a, int lda, const T* x, int incx,
                    const T* beta, T* y, int incy) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || lda < std::max(1, m) || !incx || !incy) return CUBLAS_STATUS_INVALID_VALUE;
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    const bool plain = how == CUBLAS_OP_N;
    const int64_t rows = plain ? m : n, sums = plain ? n : m;
    const Matrix out = column(y, rows, incy);
    return done({name, line, &here}, {rows, 1, sums, Gemm::operand(a, element_of(a), how, lda), column(x, sums, incx), out, out, scale(alpha), scale(beta), kAsTheyAre});
}
template <class T>
cublasStatus_t ger(const char* name, int line, cublasHandle_t handle, int m, int n, const T* alpha, const T* x, int incx, const T* y, int incy, T* a, int lda) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || lda < std::max(1, m) || !incx || !incy) return CUBLAS_STATUS_INVALID_VALUE;
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    const Matrix out{a, element_of(x), 1, lda};
    return done({name, line, &here}, {m, n, 1, column(x, m, incx), column(y, n, incy), out, out, scale(alpha), 1.0, kAsTheyAre});
}
inline Triangle triangle(cublasFillMode_t which) { return which == CUBLAS_FILL_MODE_LOWER ? kLower : which == CUBLAS_FILL_MODE_UPPER ? kUpper : kWhole; }
template <class T>
cublasStatus_t beside(const char* name, int line, cublasHandle_t handle, cublasSideMode_t side, int m, int n, const T* alpha, Matrix square, const T* b, int ldb,
                      double beta, T* c, int ldc) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || ldb < std::max(1, m) || ldc < std::max(1, m)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!m || !n) return CUBLAS_STATUS_SUCCESS;
    const Matrix other{const_cast<T*>(b), element_of(b), 1, ldb}, out{c, element_of(b), 1, ldc};
    const bool left = side == CUBLAS_SIDE_LEFT;
    return done({name, line, &here}, {m, n, left ? m : n, left ? square : other, left ? other : square, out, out, scale(alpha), beta, rounding_of(handle)});
}
template <class T>
cublasStatus_t symm(const char* name, int line, cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t which, int m, int n, const T* alpha, const T* a, int lda,
                    const T* b, int ldb, const T* beta, T* c, int ldc) {
    if (lda < std::max(1, side == CUBLAS_SIDE_LEFT ? m : n)) return CUBLAS_STATUS_INVALID_VALUE;
    return beside(name, line, handle, side, m, n, alpha, {const_cast<T*>(a), element_of(a), 1, lda, triangle(which), true}, b, ldb, scale(beta), c, ldc);
}
template <class T>
cublasStatus_t trmm(const char* name, int line, cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t which, cublasOperation_t how, cublasDiagType_t diagonal,
                    int m, int n, const T* alpha, const T* a, int lda, const T* b, int ldb, T* c, int ldc) {
    if (lda < std::max(1, side == CUBLAS_SIDE_LEFT ? m : n)) return CUBLAS_STATUS_INVALID_VALUE;
    Matrix square = Gemm::operand(a, element_of(a), how, lda);
    const bool turned = how != CUBLAS_OP_N, lower = (which == CUBLAS_FILL_MODE_LOWER) != turned;
    square.stored = lower ? kLower : kUpper;
    square.unit = diagonal == CUBLAS_DIAG_UNIT;
    return beside(name, line, handle, side, m, n, alpha, square, b, ldb, 0.0, c, ldc);
}
template <class T>
cublasStatus_t syrk(const char* name, int line, cublasHandle_t handle, cublasFillMode_t which, cublasOperation_t how, int n, int k, const T* alpha, const T* a, int lda,
                    const T* beta, T* c, int ldc) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (n < 0 || k < 0 || lda < std::max(1, how == CUBLAS_OP_N ? n : k) || ldc < std::max(1, n)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!n) return CUBLAS_STATUS_SUCCESS;
    const Element e = element_of(a);
    const Matrix out{c, e, 1, ldc, triangle(which)};
    const cublasOperation_t turned = how == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N;
    return done({name, line, &here}, {n, n, k, Gemm::operand(a, e, how, lda), Gemm::operand(a, e, turned, lda), out, out, scale(alpha), scale(beta), rounding_of(handle)});
}

// Vectors: looked at, then gone through by `visit(i, place of x, place of y)`.
template <class T>
int64_t first_of(int64_t n, int64_t step) { return step < 0 ? (1 - n) * step : 0; }
template <class T>
bool may(const LibraryCall& call, const T* x, int64_t n, int64_t step, bool write) {
    return !crucible_library_access(&call, x + first_of<T>(n, step), sizeof(T), step * int64_t(sizeof(T)), n, write);
}
template <class T, class F>
cublasStatus_t vectors(const LibraryCall& call, cublasHandle_t handle, int64_t n, const T* x, int64_t incx, bool writes_x, const T* y, int64_t incy, bool reads_y,
                       bool writes_y, const F& visit) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (n <= 0) return CUBLAS_STATUS_SUCCESS;
    if (!may(call, x, n, incx, false) || (writes_x && !may(call, x, n, incx, true))) return CUBLAS_STATUS_EXECUTION_FAILED;
    if ((reads_y && !may(call, y, n, incy, false)) || (writes_y && !may(call, y, n, incy, true))) return CUBLAS_STATUS_EXECUTION_FAILED;
    T *px = const_cast<T*>(x) + first_of<T>(n, incx), *py = const_cast<T*>(y) + (y ? first_of<T>(n, incy) : 0);
    for (int64_t i = 0; i < n; ++i) visit(i, px[i * incx], py[y ? i * incy : 0]);
    return CUBLAS_STATUS_SUCCESS;
}
}  // namespace crucible::blas

#define CRUCIBLE_LINE int line = __builtin_LINE()
#define CRUCIBLE_BLAS(LETTER, T)                                                                                                                                     \
    inline cublasStatus_t cublas##LETTER##gemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* alpha, const T* a, int lda, \
                                               const T* b, int ldb, const T* beta, T* c, int ldc, CRUCIBLE_LINE) {                                                   \
        return crucible::blas::gemm("cublas" #LETTER "gemm", line, h, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);                             \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##gemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* alpha,      \
                                                             const T* a, int lda, long long sa, const T* b, int ldb, long long sb, const T* beta, T* c, int ldc,     \
                                                             long long sc, int count, CRUCIBLE_LINE) {                                                               \
        return crucible::blas::gemm("cublas" #LETTER "gemmStridedBatched", line, h, ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc, sc, count);        \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##gemmBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* alpha,             \
                                                      const T* const a[], int lda, const T* const b[], int ldb, const T* beta, T* const c[], int ldc, int count,     \
                                                      CRUCIBLE_LINE) {                                                                                               \
        return crucible::blas::gemm_by_pointers("cublas" #LETTER "gemmBatched", line, h, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, count);               \
    }
#define CRUCIBLE_BLAS_OF_REALS(LETTER, T)                                                                                                                            \
    inline cublasStatus_t cublas##LETTER##gemv(cublasHandle_t h, cublasOperation_t how, int m, int n, const T* alpha, const T* a, int lda, const T* x, int incx,     \
                                               const T* beta, T* y, int incy, CRUCIBLE_LINE) {                                                                       \
        return crucible::blas::gemv("cublas" #LETTER "gemv", line, h, how, m, n, alpha, a, lda, x, incx, beta, y, incy);                                             \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##ger(cublasHandle_t h, int m, int n, const T* alpha, const T* x, int incx, const T* y, int incy, T* a, int lda,             \
                                              CRUCIBLE_LINE) {                                                                                                       \
        return crucible::blas::ger("cublas" #LETTER "ger", line, h, m, n, alpha, x, incx, y, incy, a, lda);                                                          \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##symm(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t which, int m, int n, const T* alpha, const T* a, int lda,   \
                                               const T* b, int ldb, const T* beta, T* c, int ldc, CRUCIBLE_LINE) {                                                   \
        return crucible::blas::symm("cublas" #LETTER "symm", line, h, side, which, m, n, alpha, a, lda, b, ldb, beta, c, ldc);                                       \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##trmm(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t which, cublasOperation_t how, cublasDiagType_t diagonal,    \
                                               int m, int n, const T* alpha, const T* a, int lda, const T* b, int ldb, T* c, int ldc, CRUCIBLE_LINE) {               \
        return crucible::blas::trmm("cublas" #LETTER "trmm", line, h, side, which, how, diagonal, m, n, alpha, a, lda, b, ldb, c, ldc);                              \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##syrk(cublasHandle_t h, cublasFillMode_t which, cublasOperation_t how, int n, int k, const T* alpha, const T* a, int lda,   \
                                               const T* beta, T* c, int ldc, CRUCIBLE_LINE) {                                                                        \
        return crucible::blas::syrk("cublas" #LETTER "syrk", line, h, which, how, n, k, alpha, a, lda, beta, c, ldc);                                                \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##axpy(cublasHandle_t h, int n, const T* alpha, const T* x, int incx, T* y, int incy, CRUCIBLE_LINE) {                       \
        return crucible::blas::vectors<T>({"cublas" #LETTER "axpy", line, &crucible::blas::here}, h, n, x, incx, false, y, incy, true, true,                         \
                                          [=](int64_t, T& u, T& v) { v += *alpha * u; });                                                                            \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##copy(cublasHandle_t h, int n, const T* x, int incx, T* y, int incy, CRUCIBLE_LINE) {                                       \
        return crucible::blas::vectors<T>({"cublas" #LETTER "copy", line, &crucible::blas::here}, h, n, x, incx, false, y, incy, false, true,                        \
                                          [](int64_t, T& u, T& v) { v = u; });                                                                                       \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##scal(cublasHandle_t h, int n, const T* alpha, T* x, int incx, CRUCIBLE_LINE) {                                             \
        return crucible::blas::vectors<T>({"cublas" #LETTER "scal", line, &crucible::blas::here}, h, n, x, incx, true, nullptr, 1, false, false,                     \
                                          [=](int64_t, T& u, T&) { u *= *alpha; });                                                                                  \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##dot(cublasHandle_t h, int n, const T* x, int incx, const T* y, int incy, T* result, CRUCIBLE_LINE) {                       \
        double sum = 0;                                                                                                                                              \
        const cublasStatus_t status = crucible::blas::vectors<T>({"cublas" #LETTER "dot", line, &crucible::blas::here}, h, n, x, incx, false, y, incy, true, false,  \
                                                                 [&](int64_t, T& u, T& v) { sum += double(u) * double(v); });                                        \
        *result = T(sum);                                                                                                                                            \
        return status;                                                                                                                                               \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##nrm2(cublasHandle_t h, int n, const T* x, int incx, T* result, CRUCIBLE_LINE) {                                            \
        double sum = 0;                                                                                                                                              \
        const cublasStatus_t status = crucible::blas::vectors<T>({"cublas" #LETTER "nrm2", line, &crucible::blas::here}, h, n, x, incx, false, nullptr, 1, false,    \
                                                                 false, [&](int64_t, T& u, T&) { sum += double(u) * double(u); });                                   \
        *result = T(std::sqrt(sum));                                                                                                                                 \
        return status;                                                                                                                                               \
    }                                                                                                                                                                \
    inline cublasStatus_t cublas##LETTER##asum(cublasHandle_t h, int n, const T* x, int incx, T* result, CRUCIBLE_LINE) {                                            \
        double sum = 0;                                                                                                                                              \
        const cublasStatus_t status = crucible::blas::vectors<T>({"cublas" #LETTER "asum", line, &crucible::blas::here}, h, n, x, incx, false, nullptr, 1, false,    \
                                                                 false, [&](int64_t, T& u, T&) { sum += std::abs(double(u)); });                                     \
        *result = T(sum);                                                                                                                                            \
        return status;                                                                                                                                               \
    }                                                                                                                                                                \
    inline cublasStatus_t cublasI##LETTER##amax_(const char* name, cublasHandle_t h, int n, const T* x, int incx, int* result, int line, bool least) {               \
        T best = T(least ? INFINITY : -1);                                                                                                                           \
        *result = 0;                                                                                                                                                 \
        return crucible::blas::vectors<T>({name, line, &crucible::blas::here}, h, n, x, incx, false, nullptr, 1, false, false, [&](int64_t i, T& u, T&) {            \
            if (least ? std::abs(u) < best : std::abs(u) > best) best = std::abs(u), *result = int(i) + 1;                                                           \
        });                                                                                                                                                          \
    }

CRUCIBLE_BLAS(S, float)
CRUCIBLE_BLAS(D, double)
CRUCIBLE_BLAS(H, __half)
CRUCIBLE_BLAS_OF_REALS(S, float)
CRUCIBLE_BLAS_OF_REALS(D, double)
#undef CRUCIBLE_BLAS
#undef CRUCIBLE_BLAS_OF_REALS
inline cublasStatus_t cublasIsamax(cublasHandle_t h, int n, const float* x, int incx, int* result, CRUCIBLE_LINE) { return cublasISamax_("cublasIsamax", h, n, x, incx, result, line, false); }
inline cublasStatus_t cublasIsamin(cublasHandle_t h, int n, const float* x, int incx, int* result, CRUCIBLE_LINE) { return cublasISamax_("cublasIsamin", h, n, x, incx, result, line, true); }
inline cublasStatus_t cublasIdamax(cublasHandle_t h, int n, const double* x, int incx, int* result, CRUCIBLE_LINE) { return cublasIDamax_("cublasIdamax", h, n, x, incx, result, line, false); }
inline cublasStatus_t cublasIdamin(cublasHandle_t h, int n, const double* x, int incx, int* result, CRUCIBLE_LINE) { return cublasIDamax_("cublasIdamin", h, n, x, incx, result, line, true); }

template <class C>
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* a, cudaDataType at, int lda,
                            const void* b, cudaDataType bt, int ldb, const void* beta, void* c, cudaDataType ct, int ldc, C compute, cublasGemmAlgo_t, CRUCIBLE_LINE) {
    return crucible::blas::gemm_ex("cublasGemmEx", line, h, ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta, c, ct, ldc, 0, 1, compute);
}
inline cublasStatus_t cublasSgemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float* alpha, const void* a, cudaDataType at,
                                    int lda, const void* b, cudaDataType bt, int ldb, const float* beta, void* c, cudaDataType ct, int ldc, CRUCIBLE_LINE) {
    return crucible::blas::gemm_ex("cublasSgemmEx", line, h, ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta, c, ct, ldc, 0, 1, CUBLAS_COMPUTE_32F);
}
template <class C>
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* a,
                                          cudaDataType at, int lda, long long sa, const void* b, cudaDataType bt, int ldb, long long sb, const void* beta, void* c,
                                          cudaDataType ct, int ldc, long long sc, int count, C compute, cublasGemmAlgo_t, CRUCIBLE_LINE) {
    return crucible::blas::gemm_ex("cublasGemmStridedBatchedEx", line, h, ta, tb, m, n, k, alpha, a, at, lda, sa, b, bt, ldb, sb, beta, c, ct, ldc, sc, count, compute);
}
template <class C>
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* const a[],
                                   cudaDataType at, int lda, const void* const b[], cudaDataType bt, int ldb, const void* beta, void* const c[], cudaDataType ct, int ldc,
                                   int count, C compute, cublasGemmAlgo_t, CRUCIBLE_LINE) {
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    crucible::blas::Gemm one{ta, tb, m, n, k, lda, ldb, ldc};
    if (!crucible::blas::mixed(h, &one, alpha, at, bt, beta, ct, crucible::blas::compute_of(compute))) return CUBLAS_STATUS_NOT_SUPPORTED;
    return crucible::blas::batch(h, {"cublasGemmBatchedEx", line, &crucible::blas::here}, one, count, [=](int64_t i) { return crucible::blas::Places{a[i], b[i], c[i]}; });
}
#undef CRUCIBLE_LINE
#define cublasCreate_v2 cublasCreate
#define cublasDestroy_v2 cublasDestroy
#define cublasSetStream_v2 cublasSetStream
#define cublasSgemm_v2 cublasSgemm
#define cublasDgemm_v2 cublasDgemm
#define cublasSgemv_v2 cublasSgemv
