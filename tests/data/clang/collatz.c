// Divergent control flow and scratch: each work-item runs a Collatz sequence, keeps its last eight values in an array that a run-time index
// reaches, and writes the length and a digest of the array.
#include "common.h"

KERNEL(64) void kernel(GLOBAL const unsigned *start, GLOBAL unsigned *out, int n) {
  int i = group() * 64 + item();
  if (i >= n) return;
  unsigned value = start[i], steps = 0;
  volatile unsigned recent[8] = {0};
  while (value != 1) {
    recent[steps & 7] = value;
    value = value & 1 ? 3 * value + 1 : value / 2;
    steps++;
  }
  unsigned digest = 0;
  for (unsigned k = 0; k < 8; k++) digest = digest * 31 + recent[k];
  out[2 * i] = steps;
  out[2 * i + 1] = digest;
}
