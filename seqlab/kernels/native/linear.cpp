// x Wᵀ + b for rows x that are few, with W in float32, or in int8 with a scale for each output.
//
// int8: w = s q with |q| ≤ 127. A row of x is rounded by a scale of its own, and the sums are exact in 32 bits, so a
// row's answer depends on nothing but the row. It is rounded either to 16 bits, as finely as the sums allow, which is
// the dequantised float product up to a ten-thousandth of the row's largest number; or to 8 bits (1/127 of the largest),
// for which processors have products that are twice as fast (VNNI). How the weights are packed says which.

#include "linear.h"

#include "check.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <cmath>
#include <torch/library.h>
#include <utility>

namespace seqlab {
namespace {

constexpr int64_t PANEL = 16;  // outputs that are computed together
constexpr int64_t FEW = 4;     // rows for which reading the weights is all that counts
#ifdef __AVX512VNNI__
constexpr int MOST = 12, PANELS = 2;  // rows and panels whose sums fit into the registers
#else
constexpr int MOST = 6, PANELS = 1;
#endif

int64_t pairs_of(int64_t inputs) { return (inputs + 1) / 2; }
int64_t quads_of(int64_t inputs) { return (inputs + 3) / 4; }
int64_t panels_of(int64_t outputs) { return (outputs + PANEL - 1) / PANEL; }

// Panels of 16 outputs; in a panel pair after pair of inputs, each as (output, input of the pair).
at::Tensor pack_int8(const at::Tensor& q) {
  check_tensor("q", q, at::kChar, {-1, -1});
  const int64_t outputs = q.size(0), inputs = q.size(1), pairs = pairs_of(inputs);
  const at::Tensor packed = at::zeros({panels_of(outputs), pairs, PANEL, 2}, q.options());
  const int8_t* from = q.const_data_ptr<int8_t>();
  int8_t* to = packed.mutable_data_ptr<int8_t>();
  for (int64_t n = 0; n < outputs; ++n)
    for (int64_t k = 0; k < inputs; ++k)
      to[(((n / PANEL) * pairs + k / 2) * PANEL + n % PANEL) * 2 + k % 2] = from[n * inputs + k];
  return packed;
}

// The same with four inputs in the place of two, and in each panel first what the sums begin with: -128 Σ w, because
// the processor takes the numbers of a row without their sign, 128 larger than they are.
at::Tensor pack_int8_coarse(const at::Tensor& q) {
  check_tensor("q", q, at::kChar, {-1, -1});
  const int64_t outputs = q.size(0), inputs = q.size(1), quads = quads_of(inputs);
  TORCH_CHECK(inputs <= 65536, inputs, " inputs are too many for sums in 32 bits");
#ifndef __AVX512VNNI__
  return pack_int8(q);  // without products of 8 bits they would only be slower, and coarser
#endif
  const at::Tensor packed = at::zeros({panels_of(outputs), 1 + quads, PANEL, 4}, q.options());
  const int8_t* from = q.const_data_ptr<int8_t>();
  int8_t* to = packed.mutable_data_ptr<int8_t>();
  for (int64_t n = 0; n < outputs; ++n) {
    int8_t* panel = to + n / PANEL * (1 + quads) * PANEL * 4;
    int32_t begin = 0;
    for (int64_t k = 0; k < inputs; ++k) {
      panel[((1 + k / 4) * PANEL + n % PANEL) * 4 + k % 4] = from[n * inputs + k];
      begin -= 128 * from[n * inputs + k];
    }
    std::memcpy(panel + n % PANEL * 4, &begin, sizeof begin);
  }
  return packed;
}

// The whole numbers of a row, so many in each 32 bits and `apart` of these between two, and what one of them is worth.
template <typename T>
float round_row(const float* x, int64_t inputs, int64_t apart, int32_t* to) {
  constexpr bool coarse = sizeof(T) == 1;
  constexpr int64_t each = 4 / sizeof(T);
  const float finest = coarse ? 127 : std::min<int64_t>(32767, ((int64_t{1} << 31) - 1) / (127 * inputs));
  Lanes most = {}, least = {};
  int64_t i = 0;
  for (; i + LANES <= inputs; i += LANES) {
    const Lanes lanes = load(x + i);
    most = lanes > most ? lanes : most;
    least = lanes < least ? lanes : least;
  }
  float largest = 0;
  for (int j = 0; j < LANES; ++j) largest = std::max({largest, most[j], -least[j]});
  for (; i < inputs; ++i) largest = std::max(largest, std::fabs(x[i]));
  const float up = largest > 0 ? finest / largest : 0.0f;
  typedef T Numbers __attribute__((vector_size(sizeof(T) * LANES)));
  const auto whole = [up](Lanes x) {  // the nearest, half away from zero
    const Lanes half = x < 0 ? Lanes{} - 0.5f : Lanes{} + 0.5f;
    const Wholes wholes = __builtin_convertvector(x * up + half, Wholes);
    return __builtin_convertvector(coarse ? wholes + 128 : wholes, Numbers);
  };
  const auto put = [&to, apart](Numbers lanes, int64_t count) {
    int32_t words[LANES / each];
    std::memcpy(words, &lanes, sizeof words);
    for (int64_t j = 0; j < count; ++j, to += apart) *to = words[j];
  };
  for (i = 0; i + LANES <= inputs; i += LANES) put(whole(load(x + i)), LANES / each);
  float left[LANES] = {};
  std::copy(x + i, x + inputs, left);
  put(whole(load(left)), (inputs - i + each - 1) / each);
  return largest / finest;
}

// Sums of R rows with P panels, panel by panel; of the rows' numbers those of one pair of inputs stand together.
template <int R, int P>
void pair_sums(const int32_t* x, const int8_t* panel, int64_t pairs, int32_t (*sums)[PANEL]) {
#if defined(__AVX512VNNI__)
  __m512i all[P][R];
#pragma GCC unroll 2
  for (int q = 0; q < P; ++q)
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) all[q][r] = _mm512_setzero_si512();
  for (int64_t p = 0; p < pairs; ++p, panel += 2 * PANEL, x += R) {
    __m512i weights[P];
#pragma GCC unroll 2
    for (int q = 0; q < P; ++q)
      weights[q] = _mm512_cvtepi8_epi16(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + q * pairs * 2 * PANEL)));
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512i pair = _mm512_set1_epi32(x[r]);
#pragma GCC unroll 2
      for (int q = 0; q < P; ++q) all[q][r] = _mm512_dpwssd_epi32(all[q][r], pair, weights[q]);
    }
  }
#pragma GCC unroll 2
  for (int q = 0; q < P; ++q)
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) _mm512_storeu_si512(sums[q * R + r], all[q][r]);
#elif defined(__AVX2__)
  static_assert(P == 1);
  __m256i low[R], high[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) low[r] = high[r] = _mm256_setzero_si256();
  for (int64_t p = 0; p < pairs; ++p, panel += 2 * PANEL, x += R) {
    const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel)));
    const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel + PANEL)));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256i pair = _mm256_set1_epi32(x[r]);
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
  std::fill(&sums[0][0], &sums[0][0] + R * P * PANEL, 0);
  for (int q = 0; q < P; ++q)
    for (int64_t p = 0; p < pairs; ++p)
      for (int r = 0; r < R; ++r)
        for (int64_t n = 0; n < PANEL; ++n) {
          int16_t two[2];
          std::memcpy(two, x + p * R + r, sizeof two);
          const int8_t* weights = panel + 2 * ((q * pairs + p) * PANEL + n);
          sums[q * R + r][n] += two[0] * weights[0] + two[1] * weights[1];
        }
#endif
}

// The same of rows in 8 bits; S sums of each share the work, so that one need not wait for the other.
template <int R, int P>
void quad_sums(const int32_t* x, const int8_t* panel, int64_t quads, int32_t (*sums)[PANEL]) {
#if defined(__AVX512VNNI__)
  constexpr int S = R == 1 ? 4 : R < 4 ? 2 : 1;
  const int64_t size = (1 + quads) * 4 * PANEL;
  __m512i all[S][P][R];
#pragma GCC unroll 4
  for (int s = 0; s < S; ++s)
#pragma GCC unroll 2
    for (int q = 0; q < P; ++q)
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) all[s][q][r] = s ? _mm512_setzero_si512() : _mm512_loadu_si512(panel + q * size);
  panel += 4 * PANEL;
  const auto add = [&](int64_t p, int s) __attribute__((always_inline)) {
    __m512i weights[P];
#pragma GCC unroll 2
    for (int q = 0; q < P; ++q) weights[q] = _mm512_loadu_si512(panel + q * size + p * 4 * PANEL);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512i quad = _mm512_set1_epi32(x[p * R + r]);
#pragma GCC unroll 2
      for (int q = 0; q < P; ++q) all[s][q][r] = _mm512_dpbusd_epi32(all[s][q][r], quad, weights[q]);
    }
  };
  int64_t p = 0;
  for (; p + S <= quads; p += S)
#pragma GCC unroll 4
    for (int s = 0; s < S; ++s) add(p + s, s);
  for (; p < quads; ++p) add(p, 0);
#pragma GCC unroll 2
  for (int q = 0; q < P; ++q)
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int s = 1; s < S; ++s) all[0][q][r] = _mm512_add_epi32(all[0][q][r], all[s][q][r]);
      _mm512_storeu_si512(sums[q * R + r], all[0][q][r]);
    }
#else
  for (int q = 0; q < P; ++q, panel += (1 + quads) * 4 * PANEL)
    for (int r = 0; r < R; ++r) {
      std::memcpy(sums[q * R + r], panel, sizeof sums[0]);
      for (int64_t p = 0; p < quads; ++p) {
        uint8_t four[4];
        std::memcpy(four, x + p * R + r, sizeof four);
        for (int64_t n = 0; n < PANEL; ++n)
          for (int i = 0; i < 4; ++i) sums[q * R + r][n] += four[i] * panel[((1 + p) * PANEL + n) * 4 + i];
      }
    }
#endif
}

using Sums = void (*)(const int32_t*, const int8_t*, int64_t, int32_t (*)[PANEL]);

// The kernel for each number of rows, from one to MOST.
template <int P, bool COARSE>
constexpr auto SUMS = []<size_t... R>(std::index_sequence<R...>) {
  return std::array<Sums, sizeof...(R)>{
      (COARSE ? quad_sums<static_cast<int>(R) + 1, P> : pair_sums<static_cast<int>(R) + 1, P>)...};
}(std::make_index_sequence<MOST>());

// Dot products of R rows with C outputs at once: so many sums hide the latency of each.
template <int R, int C>
void dots(const float* x, const float* w, int64_t inputs, float (*sums)[C]) {
  Lanes parts[R][C] = {};
  int64_t k = 0;
  for (; k + LANES <= inputs; k += LANES) {
    Lanes read[C];
    for (int c = 0; c < C; ++c) read[c] = load(w + c * inputs + k);
    for (int r = 0; r < R; ++r) {
      const Lanes row = load(x + r * inputs + k);
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

// A row's sums with a panel as what they are worth.
void put(const int32_t* sums, float worth, const float* scales, const float* bias, int64_t width, float* to) {
  if (width == PANEL && bias)  // as nearly always: so many at once
    for (int64_t c = 0; c < PANEL; c += LANES) {
      Wholes whole;
      std::memcpy(&whole, sums + c, sizeof whole);
      store(to + c, __builtin_convertvector(whole, Lanes) * (worth * load(scales + c)) + load(bias + c));
    }
  else
    for (int64_t c = 0; c < width; ++c)
      to[c] = static_cast<float>(sums[c]) * (worth * scales[c]) + (bias ? bias[c] : 0.0f);
}

at::Tensor int8_linear(
    const at::Tensor& x, const at::Tensor& packed, const at::Tensor& scale, const std::optional<at::Tensor>& bias) {
  TORCH_CHECK(x.dim() > 0, "x must have features");
  const at::Tensor rows = x.contiguous();
  check_tensor("x", rows, at::kFloat, x.sizes());
  TORCH_CHECK(scale.defined(), "int8 weights need their scales");
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
  TORCH_CHECK(weight.dim() > 0 && inputs > 0, "a weight must have inputs and outputs");
  outputs = weight.size(0);
  if (scale.defined()) {
    check_tensor("scale", scale, at::kFloat, {-1});
    outputs = scale.size(0);
    coarse = weight.dim() == 4 && weight.size(3) == 4;
    const int64_t deep = coarse ? 1 + quads_of(inputs) : pairs_of(inputs);
    check_tensor("packed", weight, at::kChar, {panels_of(outputs), deep, PANEL, coarse ? 4 : 2});
  } else {
    check_tensor("weight", weight, at::kFloat, {-1, inputs});
  }
  if (bias.defined()) check_tensor("bias", bias, at::kFloat, {outputs});
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
  constexpr int64_t together = 96;  // rows whose numbers stay in the cache
  const int64_t words = coarse ? quads_of(inputs) : pairs_of(inputs);  // of 32 bits in a row
  const int64_t apart = coarse ? (1 + words) * 4 * PANEL : words * 2 * PANEL;  // from one panel to the next
  static thread_local std::vector<int32_t> numbers;
  numbers.resize(std::min(rows, together) * words);
  const float* scales = scale.const_data_ptr<float>();
  const float* b = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  const int8_t* weights = weight.const_data_ptr<int8_t>();
  const auto *single = &(coarse ? SUMS<1, true> : SUMS<1, false>), *several = &(coarse ? SUMS<PANELS, true> : SUMS<PANELS, false>);
  for (int64_t first = 0; first < rows; first += together) {
    const int64_t count = std::min(together, rows - first);
    float worth[together];
    for (int64_t r = 0; r < count; ++r) {
      const int64_t block = r / MOST * MOST, in_block = std::min<int64_t>(MOST, count - block);
      int32_t* to = &numbers[block * words + r - block];
      const float* row = x + (first + r) * inputs;
      worth[r] = coarse ? round_row<uint8_t>(row, inputs, in_block, to) : round_row<int16_t>(row, inputs, in_block, to);
    }
    for (int64_t n = 0, panels; n < outputs; n += panels * PANEL) {
      const int8_t* panel = weights + n / PANEL * apart;
      panels = n + PANELS * PANEL <= outputs ? PANELS : 1;
      for (int64_t r = 0; r < count; r += MOST) {
        int32_t sums[PANELS * MOST][PANEL];
        const int64_t block = std::min<int64_t>(MOST, count - r);
        (*(panels == 1 ? single : several))[block - 1](&numbers[r * words], panel, words, sums);
        for (int64_t q = 0; q < panels; ++q)
          for (int64_t i = 0; i < block; ++i)
            put(sums[q * block + i], worth[r + i], scales + n + q * PANEL, b ? b + n + q * PANEL : nullptr,
                std::min(PANEL, outputs - n - q * PANEL), out + (first + r + i) * outputs + n + q * PANEL);
      }
    }
  }
}

}  // namespace seqlab

TORCH_LIBRARY_FRAGMENT(seqlab, m) {
  m.def("pack_int8(Tensor q) -> Tensor", seqlab::pack_int8);
  m.def("pack_int8_coarse(Tensor q) -> Tensor", seqlab::pack_int8_coarse);
  m.def("int8_linear(Tensor x, Tensor packed, Tensor scale, Tensor? bias) -> Tensor", seqlab::int8_linear);
}
