// x Wᵀ + b for rows x that are few, with W in float32, or in int8 with a scale for each output.
//
// int8: w = s q with |q| ≤ 127. A row of x is rounded to 16 bits by a scale of its own, as finely as sums of `inputs`
// products in 32 bits allow: the sums are then exact, so a row's answer depends on nothing but the row, and it is the
// answer of the dequantised float product up to that rounding (a ten-thousandth of the row's largest number or less).

#include "products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <algorithm>
#include <cmath>
#include <torch/library.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace seqlab {
namespace {

constexpr int64_t PANEL = 16;  // outputs that are computed together
constexpr int64_t FEW = 4;     // rows for which reading the weights is all that counts

int64_t pairs_of(int64_t inputs) { return (inputs + 1) / 2; }
int64_t panels_of(int64_t outputs) { return (outputs + PANEL - 1) / PANEL; }

// Panels of 16 outputs; in a panel pair after pair of inputs, each as (output, input of the pair).
at::Tensor pack_int8(const at::Tensor& q) {
  const int64_t outputs = q.size(0), inputs = q.size(1), pairs = pairs_of(inputs);
  const at::Tensor packed = at::zeros({panels_of(outputs), pairs, PANEL, 2}, q.options());
  const int8_t* from = q.const_data_ptr<int8_t>();
  int8_t* to = packed.mutable_data_ptr<int8_t>();
  for (int64_t n = 0; n < outputs; ++n)
    for (int64_t k = 0; k < inputs; ++k)
      to[(((n / PANEL) * pairs + k / 2) * PANEL + n % PANEL) * 2 + k % 2] = from[n * inputs + k];
  return packed;
}

// The whole numbers of a row, pair after pair with `apart` between them, and what one of them is worth.
float round_row(const float* x, int64_t inputs, int64_t apart, int16_t* to) {
  const float finest = std::min<int64_t>(32767, ((int64_t{1} << 31) - 1) / (127 * inputs));
  Eight most = {}, least = {};
  int64_t i = 0;
  for (; i + 8 <= inputs; i += 8) {
    const Eight eight = load(x + i);
    most = eight > most ? eight : most;
    least = eight < least ? eight : least;
  }
  float largest = 0;
  for (int j = 0; j < 8; ++j) largest = std::max({largest, most[j], -least[j]});
  for (; i < inputs; ++i) largest = std::max(largest, std::fabs(x[i]));
  const float up = largest > 0 ? finest / largest : 0.0f;
  const auto whole = [up](float one) {  // the nearest, half away from zero
    return static_cast<int16_t>(one * up + (one < 0 ? -0.5f : 0.5f));
  };
  for (i = 0; i < inputs / 2; ++i) to[i * apart] = whole(x[2 * i]), to[i * apart + 1] = whole(x[2 * i + 1]);
  if (inputs % 2) to[i * apart] = whole(x[inputs - 1]), to[i * apart + 1] = 0;
  return largest / finest;
}

// Sums of R rows with one panel; of the rows' numbers those of one pair of inputs stand together.
template <int R>
void panel_sums(const int16_t* x, const int8_t* panel, int64_t pairs, int32_t (*sums)[PANEL]) {
#ifdef __AVX2__
  __m256i low[R], high[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) low[r] = high[r] = _mm256_setzero_si256();
  for (int64_t p = 0; p < pairs; ++p, panel += 2 * PANEL, x += 2 * R) {
    const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel)));
    const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel + PANEL)));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      int32_t both;
      std::memcpy(&both, x + 2 * r, sizeof both);
      const __m256i pair = _mm256_set1_epi32(both);
      low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(pair, first));
      high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(pair, second));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[r]), low[r]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[r] + 8), high[r]);
  }
#else
  std::fill(&sums[0][0], &sums[0][0] + R * PANEL, 0);
  for (int64_t p = 0; p < pairs; ++p, panel += 2 * PANEL, x += 2 * R)
    for (int r = 0; r < R; ++r)
      for (int64_t n = 0; n < PANEL; ++n) sums[r][n] += x[2 * r] * panel[2 * n] + x[2 * r + 1] * panel[2 * n + 1];
#endif
}

constexpr auto SUMS = [] {
  using Kernel = void (*)(const int16_t*, const int8_t*, int64_t, int32_t (*)[PANEL]);
  return std::array<Kernel, 6>{panel_sums<1>, panel_sums<2>, panel_sums<3>, panel_sums<4>, panel_sums<5>, panel_sums<6>};
}();

// Dot products of R rows with C outputs at once: so many sums hide the latency of each.
template <int R, int C>
void dots(const float* x, const float* w, int64_t inputs, float (*sums)[C]) {
  Eight parts[R][C] = {};
  int64_t k = 0;
  for (; k + 8 <= inputs; k += 8) {
    Eight read[C];
    for (int c = 0; c < C; ++c) read[c] = load(w + c * inputs + k);
    for (int r = 0; r < R; ++r) {
      const Eight row = load(x + r * inputs + k);
      for (int c = 0; c < C; ++c) parts[r][c] += row * read[c];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) {
      sums[r][c] = sum(parts[r][c]);
      for (int64_t i = k; i < inputs; ++i) sums[r][c] += x[r * inputs + i] * w[c * inputs + i];
    }
}

template <int R, int C>
void few_rows(const float* x, const float* w, const float* bias, int64_t inputs, int64_t outputs, float* out) {
  int64_t n = 0;
  for (; n + C <= outputs; n += C) {
    float sums[R][C];
    dots<R, C>(x, w + n * inputs, inputs, sums);
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; ++c) out[r * outputs + n + c] = sums[r][c] + (bias ? bias[n + c] : 0.0f);
  }
  for (; n < outputs; ++n)
    for (int r = 0; r < R; ++r)
      out[r * outputs + n] = dot(x + r * inputs, w + n * inputs, inputs) + (bias ? bias[n] : 0.0f);
}

at::Tensor int8_linear(
    const at::Tensor& x, const at::Tensor& packed, const at::Tensor& scale, const std::optional<at::Tensor>& bias) {
  const at::Tensor rows = x.contiguous();
  const Matrix matrix(packed, scale, bias.value_or(at::Tensor()), x.size(-1));
  auto shape = x.sizes().vec();
  shape.back() = scale.size(0);
  at::Tensor out = at::empty(shape, x.options());
  const int64_t count = x.size(-1) ? x.numel() / x.size(-1) : 0;
  matrix.times(rows.const_data_ptr<float>(), count, out.mutable_data_ptr<float>());
  return out;
}

}  // namespace

Matrix::Matrix(const at::Tensor& weight, const at::Tensor& scale, const at::Tensor& bias, int64_t inputs)
    : weight(weight), scale(scale), bias(bias), inputs(inputs) {
  outputs = scale.defined() ? scale.size(0) : weight.size(0);
  const bool fits = scale.defined()
      ? weight.dim() == 4 && weight.size(0) == panels_of(outputs) && weight.size(1) == pairs_of(inputs)
      : weight.dim() == 2 && weight.size(1) == inputs;
  TORCH_CHECK(fits && weight.is_contiguous(), "a weight of shape ", weight.sizes(), " for ", inputs, " inputs");
}

void Matrix::times(const float* x, int64_t rows, float* out) const {
  scale.defined() ? times_bytes(x, rows, out) : times_floats(x, rows, out);
}

void Matrix::times_floats(const float* x, int64_t rows, float* out) const {
  const float* w = weight.const_data_ptr<float>();
  const float* b = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  if (rows == 1) return few_rows<1, 8>(x, w, b, inputs, outputs, out);
  if (rows == 2) return few_rows<2, 4>(x, w, b, inputs, outputs, out);
  if (rows == 3) return few_rows<3, 4>(x, w, b, inputs, outputs, out);
  if (rows == FEW) return few_rows<4, 2>(x, w, b, inputs, outputs, out);
  at::Tensor to = at::from_blob(out, {rows, outputs}, at::kFloat);
  const at::Tensor from = at::from_blob(const_cast<float*>(x), {rows, inputs}, at::kFloat);
  b ? at::addmm_out(to, bias, from, weight.t()) : at::mm_out(to, from, weight.t());
}

void Matrix::times_bytes(const float* x, int64_t rows, float* out) const {
  constexpr int64_t most = SUMS.size(), together = 96;  // rows whose numbers stay in the cache
  const int64_t pairs = pairs_of(inputs), stride = 2 * pairs;
  static thread_local std::vector<int16_t> numbers;
  numbers.resize(std::min(rows, together) * stride);
  const float* scales = scale.const_data_ptr<float>();
  const float* b = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  for (int64_t first = 0; first < rows; first += together) {
    const int64_t count = std::min(together, rows - first);
    float worth[together];
    for (int64_t r = 0; r < count; ++r) {
      const int64_t block = r / most * most, place = r - block, apart = 2 * std::min(most, count - block);
      worth[r] = round_row(x + (first + r) * inputs, inputs, apart, &numbers[block * stride + 2 * place]);
    }
    for (int64_t n = 0; n < outputs; n += PANEL) {
      const int8_t* panel = weight.const_data_ptr<int8_t>() + n * stride;
      const int64_t width = std::min(PANEL, outputs - n);
      for (int64_t r = 0; r < count; r += most) {
        int32_t sums[most][PANEL];
        const int64_t block = std::min(most, count - r);
        SUMS[block - 1](&numbers[r * stride], panel, pairs, sums);
        for (int64_t i = 0; i < block; ++i) {
          float* to = out + (first + r + i) * outputs + n;
          for (int64_t c = 0; c < width; ++c)
            to[c] = static_cast<float>(sums[i][c]) * (worth[r + i] * scales[n + c]) + (b ? b[n + c] : 0.0f);
        }
      }
    }
  }
}

}  // namespace seqlab

TORCH_LIBRARY_FRAGMENT(seqlab, m) {
  m.def("pack_int8(Tensor q) -> Tensor", seqlab::pack_int8);
  m.def("int8_linear(Tensor x, Tensor packed, Tensor scale, Tensor? bias) -> Tensor", seqlab::int8_linear);
}
