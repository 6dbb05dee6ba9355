// The host side of the CUDA runtime: memory, streams, events, errors, and a device that answers as the GPU asked for.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device.h"

typedef int cudaError_t_underlying;
enum cudaError_t : int {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorCooperativeLaunchTooLarge = 720,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999
};
typedef cudaError_t cudaError;
typedef int CUresult;
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
typedef struct CUevent_st* cudaEvent_t;
struct CUevent_st { uint64_t when; };

inline cudaError_t cudaGetLastError() { return cudaError_t(crucible_last_error(1)); }
inline cudaError_t cudaPeekAtLastError() { return cudaError_t(crucible_last_error(0)); }
inline const char* cudaGetErrorString(cudaError_t error) { return crucible_error_words(error); }
inline const char* cudaGetErrorName(cudaError_t error) { return crucible_error_name(error); }
inline cudaError_t cudaDeviceSynchronize() { return cudaError_t(crucible_last_error(0)); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaError_t(crucible_last_error(0)); }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
inline cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }

template <class T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
    *pointer = static_cast<T*>(crucible_allocate(bytes));
    return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <class T>
cudaError_t cudaMallocManaged(T** pointer, size_t bytes, unsigned = 1) { return cudaMalloc(pointer, bytes); }
template <class T>
cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t) { return cudaMalloc(pointer, bytes); }
template <class T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes) { return cudaMalloc(pointer, bytes); }
template <class T>
cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned) { return cudaMalloc(pointer, bytes); }
inline cudaError_t cudaFree(void* pointer) { crucible_free(pointer); return cudaSuccess; }
inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
inline cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) { std::memmove(to, from, bytes); return cudaSuccess; }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t = nullptr) { return cudaMemcpy(to, from, bytes, kind); }
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) { std::memset(to, value, bytes); return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr) { return cudaMemset(to, value, bytes); }
inline cudaError_t cudaMemcpy2D(void* to, size_t pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind) {
    for (size_t i = 0; i < height; ++i) std::memmove(static_cast<char*>(to) + i * pitch, static_cast<const char*>(from) + i * from_pitch, width);
    return cudaSuccess;
}
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    std::memcpy(reinterpret_cast<char*>(const_cast<std::remove_const_t<T>*>(&symbol)) + offset, from, bytes);
    return cudaSuccess;
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice, cudaStream_t = nullptr) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    std::memcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes);
    return cudaSuccess;
}
template <class T>
cudaError_t cudaGetSymbolAddress(void** pointer, T& symbol) { *pointer = (void*)(&symbol); return cudaSuccess; }

// Streams run at once and in order; events are times.
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { *stream = reinterpret_cast<cudaStream_t>(1); return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { *event = new CUevent_st{0}; return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { delete event; return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) { event->when = crucible_clock(); return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) { *ms = float(double(b->when - a->when) * 1e-6); return cudaSuccess; }

// ---- what the GPU says of itself; numbers that no GPU of the table differs in are written out
struct cudaDeviceProp {
    char name[256] = "";
    size_t totalGlobalMem = crucible_gpu.memory_bytes, sharedMemPerBlock = 49152, totalConstMem = 65536;
    int regsPerBlock = 65536, warpSize = 32, maxThreadsPerBlock = crucible_gpu.threads_per_block;
    int maxThreadsDim[3] = {1024, 1024, 64}, maxGridSize[3] = {2147483647, 65535, 65535};
    int clockRate = crucible_gpu.clock_khz, major = crucible_gpu.major, minor = crucible_gpu.minor;
    int multiProcessorCount = crucible_gpu.sms, concurrentKernels = 1, l2CacheSize = int(crucible_gpu.l2_bytes);
    int maxThreadsPerMultiProcessor = crucible_gpu.threads_per_sm, memoryClockRate = crucible_gpu.memory_clock_khz;
    int memoryBusWidth = crucible_gpu.bus_bits, integrated = 0;
    size_t sharedMemPerMultiprocessor = crucible_gpu.shared_per_sm, sharedMemPerBlockOptin = crucible_gpu.shared_per_block;
    size_t reservedSharedMemPerBlock = crucible_gpu.shared_reserved;
    int regsPerMultiprocessor = crucible_gpu.registers_per_sm, cooperativeLaunch = 1;
    int maxBlocksPerMultiProcessor = crucible_gpu.blocks_per_sm, persistingL2CacheMaxSize = 0;
    int canMapHostMemory = 1, unifiedAddressing = 1, managedMemory = 1, concurrentManagedAccess = 1;
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int) {
    *prop = cudaDeviceProp();
    std::strcpy(prop->name, crucible_gpu.name);
    return cudaSuccess;
}
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxBlockDimX = 2, cudaDevAttrMaxGridDimX = 5, cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10, cudaDevAttrClockRate = 13, cudaDevAttrMultiProcessorCount = 16, cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39, cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81, cudaDevAttrMaxRegistersPerMultiprocessor = 82, cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97, cudaDevAttrMaxBlocksPerMultiprocessor = 106
};
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    const cudaDeviceProp prop;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = prop.maxThreadsPerBlock; break;
        case cudaDevAttrMaxBlockDimX: *value = prop.maxThreadsDim[0]; break;
        case cudaDevAttrMaxGridDimX: *value = prop.maxGridSize[0]; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(prop.sharedMemPerBlock); break;
        case cudaDevAttrWarpSize: *value = prop.warpSize; break;
        case cudaDevAttrClockRate: *value = prop.clockRate; break;
        case cudaDevAttrMultiProcessorCount: *value = prop.multiProcessorCount; break;
        case cudaDevAttrL2CacheSize: *value = prop.l2CacheSize; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = prop.maxThreadsPerMultiProcessor; break;
        case cudaDevAttrComputeCapabilityMajor: *value = prop.major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = prop.minor; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = int(prop.sharedMemPerMultiprocessor); break;
        case cudaDevAttrMaxRegistersPerMultiprocessor: *value = prop.regsPerMultiprocessor; break;
        case cudaDevAttrCooperativeLaunch: *value = 1; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(prop.sharedMemPerBlockOptin); break;
        case cudaDevAttrMaxBlocksPerMultiprocessor: *value = prop.maxBlocksPerMultiProcessor; break;
        default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100, cudaSharedmemCarveoutMaxL1 = 0 };
template <class F>
cudaError_t cudaFuncSetAttribute(F function, cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || size_t(value) > crucible_gpu.shared_per_block) {
        crucible_set_error(cudaErrorInvalidValue);
        return cudaErrorInvalidValue;
    }
    crucible_allow_shared((const void*)(function), size_t(value));
    return cudaSuccess;
}
template <class F>
cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
struct cudaFuncAttributes { size_t sharedSizeBytes = 0, constSizeBytes = 0, localSizeBytes = 0; int maxThreadsPerBlock = 1024, numRegs = 32, maxDynamicSharedSizeBytes = 49152; };
template <class F>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, F function) {
    *attributes = {};
    const crucible::Compiled made = crucible_compiled((const void*)(function));
    attributes->sharedSizeBytes = made.shared;
    attributes->localSizeBytes = made.local;
    if (made.registers) attributes->numRegs = made.registers;
    return cudaSuccess;
}
// Registers and static shared memory count where nvcc has compiled the kernel.
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F function, int threads, size_t shared) {
    *blocks = crucible_resident_blocks((const void*)(function), threads, shared);
    return cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F function, size_t shared = 0, int limit = 0) {
    int best = 0;
    for (int threads = limit > 0 && limit < 1024 ? limit / 32 * 32 : 1024; threads > 0; threads -= 32) {
        const int blocks = crucible_resident_blocks((const void*)(function), threads, shared);
        if (blocks * threads <= best) continue;
        best = blocks * threads;
        *block = threads;
        *grid = blocks * crucible_gpu.sms;
    }
    return best ? cudaSuccess : cudaErrorInvalidConfiguration;
}
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize };
inline cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) { *free_bytes = *total = crucible_gpu.memory_bytes; return cudaSuccess; }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { *least = *greatest = 0; return cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { *version = CUDART_VERSION; return cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { *version = CUDART_VERSION; return cudaSuccess; }

namespace crucible {
template <class... P, size_t... I>
void call_with(void (*function)(P...), void** arguments, std::index_sequence<I...>, Config config, const char* name, int line) {
    auto call = [=](auto&... values) CRUCIBLE_PLAIN { function(values...); };
    Launcher{config, Kernel{name, "", line, (const void*)(function), (const void*)(function), 0}, call}(
        *static_cast<std::remove_cvref_t<P>*>(arguments[I])...);
}
}
template <class... P>
cudaError_t crucible_launch_kernel(const char* name, int line, bool cooperative, void (*function)(P...), dim3 grid, dim3 block,
                                   void** arguments, size_t shared = 0, cudaStream_t stream = nullptr) {
    crucible::call_with(function, arguments, std::index_sequence_for<P...>{}, crucible::Config(grid, block, shared, stream, cooperative), name, line);
    return cudaError_t(crucible_last_error(0));
}
