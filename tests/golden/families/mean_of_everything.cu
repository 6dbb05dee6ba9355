// whole_mean: 1 row of 16777216: a block of 256 threads a row; rows are few and long, so 1024 blocks share each, and their parts are added in order
// whole_mean_finish: 1 row of 1024: a block of 256 threads a row
// float32 total_parts[1024]
// whole_mean<<<(1024, 1, 1), 256>>>(x, scale, total_parts)
// whole_mean_finish<<<(1, 1, 1), 256>>>(total_parts, mean)

template <typename T, int count>
struct __align__(sizeof(T) * count) Pack {  // neighbours that are loaded or stored by one instruction
    T at[count];
};
template <int count, typename T>
__device__ __forceinline__ Pack<T, count> load(const T* from) {
    return *reinterpret_cast<const Pack<T, count>*>(from);
}
template <int team, typename T>
__device__ __forceinline__ T sum_over_team(T value) {  // of `team` neighbouring lanes, the same for each of them
#pragma unroll
    for (int distance = team / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}
template <int threads, typename T>
__device__ __forceinline__ T sum_over_block(T value, T (&parts)[threads / 32]) {  // in a fixed order
    value = sum_over_team<32>(value);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return sum_over_team<threads / 32>(parts[threadIdx.x % (threads / 32)]);
}

// 1 row of 16777216: a block of 256 threads a row; rows are few and long, so 1024 blocks share each, and their parts are added in order
// total = sum of square(x) * scale
__global__ void __launch_bounds__(256) whole_mean(
    const float* __restrict__ x,
    const float* __restrict__ scale,
    float* __restrict__ total_parts) {
    constexpr unsigned columns = 16777216;
    constexpr unsigned chunk_columns = 16384;  // of a block
    constexpr unsigned step = 4096;  // columns that a block takes at once
    constexpr int threads = 256;
    constexpr int vector = 4;  // neighbours that a thread takes at once
    constexpr int packs = 4;  // of a thread
    const unsigned chunk = blockIdx.x;
    const unsigned begin = chunk * chunk_columns;
    const unsigned end = begin + chunk_columns < columns ? begin + chunk_columns : columns;
    const float scale_value = scale[0];

    float total = 0.0f;
    for (unsigned tile = begin; tile < end; tile += step) {
        Pack<float, vector> x_read[packs];
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = tile + (k * threads + threadIdx.x) * vector;
            x_read[k] = load<vector>(x + column);
        }
#pragma unroll
        for (int k = 0; k < packs; ++k) {
#pragma unroll
            for (int j = 0; j < vector; ++j) {
                const float x_value = x_read[k].at[j];
                const float total_value = x_value * x_value * scale_value;
                total += total_value;
            }
        }
    }
    __shared__ float parts[threads / 32];
    total = sum_over_block<threads>(total, parts);

    if (threadIdx.x == 0) {
        total_parts[chunk] = total;
    }
}

// 1 row of 1024: a block of 256 threads a row
// total = sum of total_parts
// mean = total * 0.041666666666666664
__global__ void __launch_bounds__(256) whole_mean_finish(
    const float* __restrict__ total_parts,
    float* __restrict__ mean) {
    constexpr int threads = 256;
    constexpr int vector = 4;  // neighbours that a thread takes at once

    float total = 0.0f;
    const unsigned column = threadIdx.x * vector;
    const Pack<float, vector> total_parts_read = load<vector>(total_parts + column);
#pragma unroll
    for (int j = 0; j < vector; ++j) {
        const float total_parts_value = total_parts_read.at[j];
        total += total_parts_value;
    }
    __shared__ float parts[threads / 32];
    total = sum_over_block<threads>(total, parts);

    if (threadIdx.x == 0) {
        const float mean_value = total * 0.041666668f;
        mean[0] = mean_value;
    }
}
