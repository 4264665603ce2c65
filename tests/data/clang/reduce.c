// out[group] = the sum and the maximum of 1000 numbers at a time, by a tree in LDS; the last workgroup has fewer.
#include "common.h"

LDS float sums[256];
LDS float tops[256];

KERNEL(256) void kernel(GLOBAL const float *in, GLOBAL float *out, int n) {
  int t = item(), start = group() * 1000, end = start + 1000 < n ? start + 1000 : n;
  float sum = 0.0f, top = -__builtin_inff();
  for (int i = start + t; i < end; i += 256) {
    sum += in[i];
    top = in[i] > top ? in[i] : top;
  }
  sums[t] = sum;
  tops[t] = top;
  for (int half = 128; half > 0; half /= 2) {
    barrier();
    if (t < half) {
      sums[t] += sums[t + half];
      tops[t] = tops[t + half] > tops[t] ? tops[t + half] : tops[t];
    }
  }
  if (t == 0) {
    out[2 * group()] = sums[0];
    out[2 * group() + 1] = tops[0];
  }
}
