// What the blocks of a Transformer are made of, for rows whose features lie side by side. Each row is computed in the
// same order of sums whatever the other rows are.

#pragma once

#include "check.h"
#include "linear.h"

#include <cmath>
#include <limits>

namespace seqlab {

constexpr int64_t AHEAD = 2;  // positions whose keys or values are on their way while one is at work

// E50 for each row.
inline void layer_norm(const float* x, const at::Tensor& gain, const at::Tensor& bias, double epsilon, int64_t rows, float* y) {
  const int64_t size = gain.size(0);
  const float *g = gain.const_data_ptr<float>(), *b = bias.const_data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r, x += size, y += size) {
    const float mean = total(x, size) / size;
    for (int64_t i = 0; i < size; ++i) y[i] = x[i] - mean;  // y may be x
    const float scale = 1 / std::sqrt(dot(y, y, size) / size + static_cast<float>(epsilon));
    for (int64_t i = 0; i < size; ++i) y[i] = y[i] * scale * g[i] + b[i];
  }
}

inline void activate(float* x, int64_t size, int64_t kind) {
  if (kind == 0)
    for (int64_t i = 0; i < size; ++i) x[i] = std::max(x[i], 0.0f);
  else if (kind == 1)
    for (int64_t i = 0; i < size; ++i) x[i] = 0.5f * x[i] * (1 + std::erf(x[i] * 0.70710678f));
  else
    for (int64_t i = 0; i < size; ++i)
      x[i] = 0.5f * x[i] * (1 + std::tanh(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
}

// Pairs of features turned by the angles of a position, as (sine, cosine) side by side.
inline void turn(float* x, const float* waves, int64_t size, int64_t head) {
  for (int64_t i = 0; i < size; i += 2) {
    const float sine = waves[i % head], cosine = waves[i % head + 1], a = x[i], b = x[i + 1];
    x[i] = a * cosine - b * sine;
    x[i + 1] = a * sine + b * cosine;
  }
}

// E45 for one row and all its heads: `place(t)` is where the keys of position t lie, and the values lie `across` from it.
template <typename Place>
void attend(const float* q, int64_t first, int64_t last, int64_t heads, int64_t head, Place place, int64_t across,
            std::vector<float>& scores, float* out) {
  const int64_t length = last - first, stride = whole_lanes(length);
  std::fill(out, out + heads * head, 0.0f);
  if (length <= 0) return;  // who sees nothing gets nothing
  scores.resize(heads * stride);
  const float scale = 1 / std::sqrt(static_cast<float>(head));
  const auto fetch = [&](int64_t t, int64_t from) {  // positions lie in pages of their own: no processor foresees them
    if (t < last)
      for (int64_t i = 0; i < heads * head; i += 16) __builtin_prefetch(place(t) + from + i);
  };
  for (int64_t t = 0; t < length; ++t) {
    const float* keys = place(first + t);
    fetch(first + t + AHEAD, 0);
    for (int64_t h = 0; h < heads; ++h) scores[h * stride + t] = scale * dot(q + h * head, keys + h * head, head);
  }
  for (int64_t t = 0; t < AHEAD; ++t) fetch(first + t, across);
  for (int64_t h = 0; h < heads; ++h) {
    float* row = &scores[h * stride];
    std::fill(row + length, row + stride, -std::numeric_limits<float>::infinity());
    const float share = 1 / exponentials(row, stride, largest_of(row, length));
    for (int64_t t = 0; t < length; ++t) row[t] *= share;
  }
  for (int64_t t = 0; t < length; ++t) {
    const float* values = place(first + t) + across;
    fetch(first + t + AHEAD, across);
    for (int64_t h = 0; h < heads; ++h)
      add_scaled(out + h * head, scores[h * stride + t], values + h * head, head);
  }
}

// The weights in the order in which they are used.
struct Weights {
  const std::vector<at::Tensor>& all;
  size_t next = 0;

  const at::Tensor& tensor() {
    TORCH_CHECK(next < all.size(), "more weights are needed than the ", all.size(), " given");
    return all[next++];
  }
  Matrix matrix(int64_t inputs) {
    const at::Tensor &weight = tensor(), &scale = tensor(), &bias = tensor();
    return Matrix(weight, scale.numel() ? scale : at::Tensor(), bias, inputs);
  }
};

struct AddNorm {
  at::Tensor gain, bias;
  double epsilon;
  bool before;

  AddNorm(Weights& weights, int64_t size, double epsilon, bool before)
      : gain(weights.tensor()), bias(weights.tensor()), epsilon(epsilon), before(before) {
    check_tensor("gain", gain, at::kFloat, {size});
    check_tensor("bias", bias, at::kFloat, {size});
  }

  const float* enter(const float* x, int64_t rows, float* room) const {
    if (!before) return x;
    layer_norm(x, gain, bias, epsilon, rows, room);
    return room;
  }
  void leave(float* x, const float* y, int64_t rows) const {
    add_scaled(x, 1.0f, y, rows * gain.size(0));
    if (!before) layer_norm(x, gain, bias, epsilon, rows, x);
  }
};

}  // namespace seqlab
