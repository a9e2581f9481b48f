// A few rows times a matrix: what one step of decoding is made of.

#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <cstring>
#include <vector>

namespace seqlab {

typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));  // as many floats as AVX2 takes at once

inline Eight load(const float* from) { return *reinterpret_cast<const Eight*>(from); }
inline void store(float* to, Eight x) { *reinterpret_cast<Eight*>(to) = x; }

inline float sum(Eight x) {
  const Eight half = x + __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
  const Eight quarter = half + __builtin_shufflevector(half, half, 2, 3, 0, 1, 6, 7, 4, 5);
  return quarter[0] + quarter[1];
}

inline float largest_of(const float* x, int64_t size) {
  float most = x[0];
  int64_t i = 0;
  if (size >= 8) {
    Eight eight = load(x);
    for (i = 8; i + 8 <= size; i += 8) eight = load(x + i) > eight ? load(x + i) : eight;
    for (int j = 0; j < 8; ++j) most = eight[j] > most ? eight[j] : most;
  }
  for (; i < size; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

inline float total(const float* x, int64_t size) {
  Eight sums = {};
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) sums += load(x + i);
  float all = sum(sums);
  for (; i < size; ++i) all += x[i];
  return all;
}

inline float dot(const float* a, const float* b, int64_t size) {
  Eight sums = {}, others = {};  // two, so that one need not wait for the other
  int64_t i = 0;
  for (; i + 16 <= size; i += 16) sums += load(a + i) * load(b + i), others += load(a + i + 8) * load(b + i + 8);
  for (; i + 8 <= size; i += 8) sums += load(a + i) * load(b + i);
  float total = sum(sums + others);
  for (; i < size; ++i) total += a[i] * b[i];
  return total;
}

// y += a x
inline void add_scaled(float* y, float a, const float* x, int64_t size) {
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) store(y + i, load(y + i) + a * load(x + i));
  for (; i < size; ++i) y[i] += a * x[i];
}

// W and b of x Wᵀ + b: W as torch has it, (outputs, inputs), or as int8 in panels with a scale for each output.
struct Matrix {
  at::Tensor weight, scale, bias;  // int8 where `scale` is defined; `bias` may be undefined
  int64_t inputs, outputs;

  Matrix(const at::Tensor& weight, const at::Tensor& scale, const at::Tensor& bias, int64_t inputs);
  void times(const float* x, int64_t rows, float* out) const;

 private:
  void times_floats(const float* x, int64_t rows, float* out) const;
  void times_bytes(const float* x, int64_t rows, float* out) const;
};

}  // namespace seqlab
