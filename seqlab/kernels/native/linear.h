// A few rows times a matrix: what one step of decoding is made of.

#pragma once

#include <ATen/core/Tensor.h>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>
#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace seqlab {

#ifdef __AVX512F__
constexpr int64_t LANES = 16;  // floats that the processor takes at once
#else
constexpr int64_t LANES = 8;
#endif
typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Wholes __attribute__((vector_size(4 * LANES)));

inline Lanes load(const float* from) { return *reinterpret_cast<const Lanes*>(from); }
inline void store(float* to, Lanes x) { *reinterpret_cast<Lanes*>(to) = x; }

inline float sum(Lanes x) {
#ifdef __AVX512F__
  const auto eight = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
      __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  const auto eight = x;
#endif
  const auto four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  const auto two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
}

// Whether any of LANES numbers is larger.
inline bool any_above(const float* x, float bar) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(_mm512_loadu_ps(x), _mm512_set1_ps(bar), _CMP_GT_OQ);
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x), _mm256_set1_ps(bar), _CMP_GT_OQ));
#else
  return std::any_of(x, x + LANES, [bar](float one) { return one > bar; });
#endif
}

inline float largest_of(const float* x, int64_t size) {
  float most = x[0];
  int64_t i = 0;
  if (size >= LANES) {
    Lanes lanes = load(x);
    for (i = LANES; i + LANES <= size; i += LANES) lanes = load(x + i) > lanes ? load(x + i) : lanes;
    for (int j = 0; j < LANES; ++j) most = lanes[j] > most ? lanes[j] : most;
  }
  for (; i < size; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

inline float total(const float* x, int64_t size) {
  Lanes sums = {};
  int64_t i = 0;
  for (; i + LANES <= size; i += LANES) sums += load(x + i);
  float all = sum(sums);
  for (; i < size; ++i) all += x[i];
  return all;
}

inline float dot(const float* a, const float* b, int64_t size) {
  Lanes sums = {}, others = {};  // two, so that one need not wait for the other
  int64_t i = 0;
  for (; i + 2 * LANES <= size; i += 2 * LANES)
    sums += load(a + i) * load(b + i), others += load(a + i + LANES) * load(b + i + LANES);
  for (; i + LANES <= size; i += LANES) sums += load(a + i) * load(b + i);
  float total = sum(sums + others);
  for (; i < size; ++i) total += a[i] * b[i];
  return total;
}

// y += a x
inline void add_scaled(float* y, float a, const float* x, int64_t size) {
  int64_t i = 0;
  for (; i + LANES <= size; i += LANES) store(y + i, load(y + i) + a * load(x + i));
  for (; i < size; ++i) y[i] += a * x[i];
}

// e^x for x ≤ 0, many at a time: 2^n by the exponent's bits, the rest by a polynomial.
inline Lanes exponential(Lanes x) {
  x = x < -87.0f ? Lanes{} - 87.0f : x;
  const Wholes n = __builtin_convertvector(x * 1.44269504f - 0.5f, Wholes);  // towards zero, and so to the nearest
  const Lanes whole = __builtin_convertvector(n, Lanes);
  const Lanes r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  Lanes y = r * 1.9875691500e-4f + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  return y * reinterpret_cast<Lanes>((n + 127) << 23);
}

inline int64_t whole_lanes(int64_t size) { return (size + LANES - 1) / LANES * LANES; }

// Σ e^(x - largest), with each term in the place of its x. `size` is a multiple of LANES: -∞ fills what is not there.
inline float exponentials(float* x, int64_t size, float largest) {
  Lanes total = {};
  for (int64_t i = 0; i < size; i += LANES) {
    const Lanes y = exponential(load(x + i) - largest);
    store(x + i, y);
    total += y;
  }
  return sum(total);
}

// W and b of x Wᵀ + b: W as torch has it, (outputs, inputs), or as int8 in panels with a scale for each output.
struct Matrix {
  at::Tensor weight, scale, bias;  // int8 where `scale` is defined; `bias` may be undefined
  int64_t inputs, outputs;
  bool coarse = false;  // whether rows are rounded to 8 bits, and not to 16

  Matrix(const at::Tensor& weight, const at::Tensor& scale, const at::Tensor& bias, int64_t inputs);
  void times(const float* x, int64_t rows, float* out) const;

 private:
  void times_floats(const float* x, int64_t rows, float* out) const;
  void times_bytes(const float* x, int64_t rows, float* out) const;
};

}  // namespace seqlab
