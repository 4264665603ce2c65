// counts[byte]++ for all bytes: atomics in LDS within a workgroup, in global memory between them.
#include "common.h"

LDS unsigned local_counts[256];

KERNEL(128) void kernel(GLOBAL const unsigned char *bytes, GLOBAL unsigned *counts, int n, int stride) {
  int t = item();
  for (int i = t; i < 256; i += 128) local_counts[i] = 0;
  barrier();
  for (int i = group() * 128 + t; i < n; i += stride) __atomic_fetch_add(&local_counts[bytes[i]], 1u, __ATOMIC_RELAXED);
  barrier();
  for (int i = t; i < 256; i += 128)
    if (local_counts[i]) __atomic_fetch_add(&counts[i], local_counts[i], __ATOMIC_RELAXED);
}
