"""What compute-sanitizer 2025.3 writes, a report or two of each tool."""

MISALIGNED = """
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 16 bytes
=========     at in_misaligned_float4_odd_offset::add_rows(const float *, float *, int)+0x90 in misaligned_float4.cu:14
=========     by thread (1,0,0) in block (0,0,0)
=========     Access to 0x7f3e2fa00004 is misaligned
=========     and is inside the nearest allocation at 0x7f3e2fa00000 of size 4000 bytes
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to \
cudaDeviceSynchronize.
=========
{"misaligned_float4_odd_offset": "CUDA error: misaligned address"}
========= ERROR SUMMARY: 2 errors
"""
OUT_OF_BOUNDS = """
========= Invalid __shared__ write of size 4 bytes
=========     at void in_bins::histogram<(int)4>(const int *, int)+0x1f0 in bins.cu:12
=========     by thread (3,0,0) in block (1,0,0)
=========     Access to 0x400 is out of bounds
=========
========= Invalid __local__ read of size 4 bytes
=========     at in_table::look_up(float *)+0x20 in table.cu:9
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0xfffcd4 is out of bounds
=========
========= ERROR SUMMARY: 2 errors
"""
RACE = """
========= Error: Race reported between Write access at in_tiles::matmul16(const float *, int)+0x310 in tiles.cu:15
=========     and Read access at in_tiles::matmul16(const float *, int)+0x450 in tiles.cu:19 [3584 hazards]
=========     and Read access at in_tiles::matmul16(const float *, int)+0x460 in tiles.cu:20 [1024 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
BARRIER = """
========= Barrier error detected. Divergent thread(s) in block
=========     at __syncthreads()+0x30 in sm_30_intrinsics.hpp:110
=========     by thread (0,0,0) in block (0,0,0)
=========         Device Frame: in_guarded::reduce(const float *, float *, int)+0x120 in guarded.cu:13
=========
========= ERROR SUMMARY: 1 error
"""
UNINITIALISED = """
========= Uninitialized __global__ memory read of size 4 bytes
=========     at in_plus::accumulate(float *)+0x60 in plus.cu:10
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7fd3f8400000
=========
========= ERROR SUMMARY: 1 error
"""
COPIED = """
========= COMPUTE-SANITIZER
========= Host API memory access error at host access to 0x7fd3f8400000 of size 4000 bytes
=========     Uninitialized access at 0x7fd3f8400f9c on access by cudaMemcpy source.
=========
========= ERROR SUMMARY: 1 error
"""
REFUSED = """
========= Program hit cudaErrorInvalidConfiguration (error 9) due to "invalid configuration argument" \
on CUDA API call to cudaLaunchKernel.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: in_big::run(at::Tensor) in big.cu:20 [0x1234]
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = """
========= COMPUTE-SANITIZER
{}
========= ERROR SUMMARY: 0 errors
"""
