// Passes over memory in a training step, each with what stands next to it: softmax, loss and gradient of the logits;
// softmax of attention, forward and back; dropout with the ReLU before it or the sum after it.
//
// Tensors are float32 or bfloat16; everything is computed in float32, and rounded once when it is written.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace seqlab {
namespace {

using at::Tensor;
using Floats = at::vec::Vectorized<float>;

constexpr int64_t kAtLeast = 1 << 14;  // numbers for a thread of its own

inline float wide(float x) { return x; }
inline float wide(at::BFloat16 x) { return std::bit_cast<float>(uint32_t(x.x) << 16); }

inline void put(float* to, float x) { *to = x; }
inline void put(at::BFloat16* to, float x) {  // the nearest; ties go to the even one, and NaN stays NaN
  const uint32_t bits = std::bit_cast<uint32_t>(x), rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  to->x = uint16_t((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0u : rounded);
}

// f(zero of x's type), for the two types there are.
template <typename F>
void typed(const Tensor& x, F f) {
  TORCH_CHECK(x.device().is_cpu(), "a tensor on the CPU is needed");
  TORCH_CHECK(x.is_contiguous(), "a contiguous tensor is needed");
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16, "float or bfloat16 is needed");
  x.scalar_type() == at::kFloat ? f(float()) : f(at::BFloat16());
}

int64_t rows_at_least(int64_t size) { return std::max<int64_t>(1, kAtLeast / std::max<int64_t>(1, size)); }

// e^(x - shift) in place, and their sum.
float exponentials(float* x, int64_t size, float shift) {
  const Floats from(shift);
  Floats sums(0);
  int64_t j = 0;
  for (; j + Floats::size() <= size; j += Floats::size()) {
    const Floats e = (Floats::loadu(x + j) - from).exp_u20();
    e.store(x + j);
    sums = sums + e;
  }
  float parts[Floats::size()], sum = 0;
  sums.store(parts);
  for (float part : parts) sum += part;
  for (; j < size; ++j) sum += x[j] = std::exp(x[j] - shift);
  return sum;
}

// NaN if there is one.
float largest(const float* x, int64_t size) {
  constexpr float least = -std::numeric_limits<float>::infinity();
  Floats most(least);
  int64_t j = 0;
  for (; j + Floats::size() <= size; j += Floats::size()) most = at::vec::maximum(most, Floats::loadu(x + j));
  float parts[Floats::size()], best = least;
  most.store(parts);
  const auto meet = [&](float other) { best = other > best || other != other ? other : best; };
  for (float part : parts) meet(part);
  for (; j < size; ++j) meet(x[j]);
  return best;
}

float sum_of(const float* x, int64_t size) {
  Floats sums(0);
  int64_t j = 0;
  for (; j + Floats::size() <= size; j += Floats::size()) sums = sums + Floats::loadu(x + j);
  float parts[Floats::size()], sum = 0;
  sums.store(parts);
  for (float part : parts) sum += part;
  for (; j < size; ++j) sum += x[j];
  return sum;
}

// E4 of each row of logits [N V], which become its gradient p - q: q is ε/V everywhere, and 1 - ε more at the gold.
Tensor softmax_gradient(const Tensor& logits_, const Tensor& gold_, double smoothing) {
  TORCH_CHECK(logits_.dim() == 2 && gold_.dim() == 1 && gold_.size(0) == logits_.size(0), "a gold for each row");
  TORCH_CHECK(gold_.scalar_type() == at::kLong && gold_.is_contiguous(), "gold ids are whole numbers");
  TORCH_CHECK(smoothing >= 0 && smoothing < 1, "smoothing is a share");
  const int64_t num = logits_.size(0), size = logits_.size(1);
  const Tensor losses_ = at::empty({num}, logits_.options().dtype(at::kFloat));
  const int64_t* gold = gold_.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < num; ++row) TORCH_CHECK(gold[row] >= 0 && gold[row] < size, "gold is no class");
  float* losses = losses_.data_ptr<float>();
  const float low = float(smoothing / double(size)), high = float(1 - smoothing);
  typed(logits_, [&](auto zero) {
    using T = decltype(zero);
    T* logits = logits_.data_ptr<T>();
    at::parallel_for(0, num, rows_at_least(size), [&](int64_t first, int64_t last) {
      std::vector<float> room(size);
      float* x = room.data();
      for (int64_t row = first; row < last; ++row) {
        T* o = logits + row * size;
        float total = 0;
        for (int64_t j = 0; j < size; ++j) x[j] = wide(o[j]);
        if (smoothing > 0) total = sum_of(x, size);
        const float shift = largest(x, size), at_gold = x[gold[row]];
        const float sum = exponentials(x, size, shift), share = 1 / sum, log_sum = shift + std::log(sum);
        losses[row] = high * (log_sum - at_gold) + float(smoothing) * (log_sum - total / float(size));
        const float best = x[gold[row]] * share - low - high;
        for (int64_t j = 0; j < size; ++j) put(o + j, x[j] * share - low);
        put(o + gold[row], best);
      }
    });
  });
  return losses_;
}

// scores [B H T S] become softmax(scale scores) over what is visible [B|1 T|1 S]; nothing visible is nothing seen.
void attention_softmax(const Tensor& scores_, const std::optional<Tensor>& visible_, double scale) {
  TORCH_CHECK(scores_.dim() == 4, "scores are [B H T S]");
  const int64_t B = scores_.size(0), H = scores_.size(1), T_ = scores_.size(2), S = scores_.size(3);
  const bool* visible = nullptr;
  int64_t by_row = 0, by_time = 0;
  if (visible_) {
    TORCH_CHECK(visible_->dim() == 3 && visible_->scalar_type() == at::kBool && visible_->is_contiguous(), "a mask");
    const int64_t rows = visible_->size(0), times = visible_->size(1);
    TORCH_CHECK(rows == B || rows == 1, "a mask for each row");
    TORCH_CHECK((times == T_ || times == 1) && visible_->size(2) == S, "a mask for each query and key");
    visible = visible_->const_data_ptr<bool>();
    by_row = rows == 1 ? 0 : times * S, by_time = times == 1 ? 0 : S;
  }
  typed(scores_, [&](auto zero) {
    using T = decltype(zero);
    T* scores = scores_.data_ptr<T>();
    at::parallel_for(0, B * H * T_, rows_at_least(S), [&](int64_t first, int64_t last) {
      std::vector<float> room(S);
      float* x = room.data();
      for (int64_t row = first; row < last; ++row) {
        T* s = scores + row * S;
        for (int64_t j = 0; j < S; ++j) x[j] = wide(s[j]) * float(scale);
        if (visible) {
          const bool* seen = visible + row / (H * T_) * by_row + row % T_ * by_time;
          for (int64_t j = 0; j < S; ++j) x[j] = seen[j] ? x[j] : -std::numeric_limits<float>::infinity();
        }
        const float shift = largest(x, S);
        const bool blind = shift == -std::numeric_limits<float>::infinity();
        const float sum = blind ? 1 : exponentials(x, S, shift), share = 1 / sum;
        for (int64_t j = 0; j < S; ++j) put(s + j, blind ? 0 : x[j] * share);
      }
    });
  });
}

// The gradient of the weights p becomes that of the scores: scale p (g - Σ p g).
void attention_softmax_back(const Tensor& g_, const Tensor& p_, double scale) {
  TORCH_CHECK(g_.sizes() == p_.sizes() && g_.scalar_type() == p_.scalar_type() && p_.is_contiguous(), "a gradient each");
  const int64_t S = p_.size(-1), num = S ? p_.numel() / S : 0;
  typed(g_, [&](auto zero) {
    using T = decltype(zero);
    T* g_all = g_.data_ptr<T>();
    const T* p_all = p_.const_data_ptr<T>();
    at::parallel_for(0, num, rows_at_least(S), [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        T* g = g_all + row * S;
        const T* p = p_all + row * S;
        float parts[16] = {}, sum = 0;
        int64_t j = 0;
        for (; j + 16 <= S; j += 16)
          for (int64_t k = 0; k < 16; ++k) parts[k] += wide(p[j + k]) * wide(g[j + k]);
        for (float part : parts) sum += part;
        for (; j < S; ++j) sum += wide(p[j]) * wide(g[j]);
        for (int64_t k = 0; k < S; ++k) put(g + k, float(scale) * wide(p[k]) * (wide(g[k]) - sum));
      }
    });
  });
}

// The mask of a row is the window of the pool that begins at its offset.
struct Windows {
  Windows(const Tensor& pool_, const Tensor& offsets_, const Tensor& x)
      : pool(pool_.const_data_ptr<float>()), offsets(offsets_.const_data_ptr<int64_t>()), rows(x.size(0)) {
    TORCH_CHECK(pool_.scalar_type() == at::kFloat && pool_.is_contiguous(), "a pool of float32");
    TORCH_CHECK(offsets_.scalar_type() == at::kLong && offsets_.is_contiguous(), "offsets are whole numbers");
    TORCH_CHECK(offsets_.dim() == 1 && offsets_.size(0) == rows, "an offset for each row");
    size = rows ? x.numel() / rows : 0;
    for (int64_t row = 0; row < rows; ++row)
      TORCH_CHECK(offsets[row] >= 0 && offsets[row] + size <= pool_.numel(), "a window outside of the pool");
  }
  // f(index of the first number of a row, its mask)
  template <typename F>
  void each(F f) const {
    at::parallel_for(0, rows, rows_at_least(size), [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) f(row * size, pool + offsets[row]);
    });
  }

  const float* pool;
  const int64_t* offsets;
  int64_t rows, size;
};

// x m; with relu, max(x, 0) m. What is no number stays none, so that a run which diverges is noticed.
Tensor dropout(const Tensor& x_, const Tensor& pool, const Tensor& offsets, bool relu) {
  const Tensor out_ = at::empty_like(x_);
  const Windows windows(pool, offsets, x_);
  typed(x_, [&](auto zero) {
    using T = decltype(zero);
    const T* x_all = x_.const_data_ptr<T>();
    T* out_all = out_.data_ptr<T>();
    windows.each([&](int64_t at, const float* m) {
      const T* x = x_all + at;
      T* out = out_all + at;
      if (relu)
        for (int64_t j = 0; j < windows.size; ++j) {
          const float value = wide(x[j]), dropped = value * m[j];  // both are computed, so that the loop has no branch
          put(out + j, value <= 0 ? 0.0f : dropped);
        }
      else
        for (int64_t j = 0; j < windows.size; ++j) put(out + j, wide(x[j]) * m[j]);
    });
  });
  return out_;
}

// Back through max(x, 0) m, of which `out` came: g m where it is positive.
Tensor relu_dropout_back(const Tensor& g_, const Tensor& out_, double keep) {
  TORCH_CHECK(g_.sizes() == out_.sizes() && g_.scalar_type() == out_.scalar_type(), "a gradient for each number");
  TORCH_CHECK(out_.is_contiguous(), "a contiguous tensor is needed");
  const Tensor back_ = at::empty_like(g_);
  typed(g_, [&](auto zero) {
    using T = decltype(zero);
    const T *g = g_.const_data_ptr<T>(), *out = out_.const_data_ptr<T>();
    T* back = back_.data_ptr<T>();
    const float factor = float(1 / keep);
    at::parallel_for(0, g_.numel(), kAtLeast, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) {
        const float value = wide(g[j]) * factor;
        put(back + j, wide(out[j]) <= 0 ? 0.0f : value);
      }
    });
  });
  return back_;
}

// x + y m, in float32.
Tensor add_dropout(const Tensor& x_, const Tensor& y_, const Tensor& pool, const Tensor& offsets) {
  TORCH_CHECK(x_.sizes() == y_.sizes() && x_.scalar_type() == at::kFloat && x_.is_contiguous(), "a float32 sum");
  const Tensor out_ = at::empty_like(x_);
  const Windows windows(pool, offsets, x_);
  typed(y_, [&](auto zero) {
    using T = decltype(zero);
    const T* y_all = y_.const_data_ptr<T>();
    const float* x_all = x_.const_data_ptr<float>();
    float* out_all = out_.data_ptr<float>();
    windows.each([&](int64_t at, const float* m) {
      const T* y = y_all + at;
      for (int64_t j = 0; j < windows.size; ++j) out_all[at + j] = x_all[at + j] + wide(y[j]) * m[j];
    });
  });
  return out_;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seqlab, m) {
  m.def("softmax_gradient(Tensor(a!) logits, Tensor gold, float smoothing) -> Tensor", softmax_gradient);
  m.def("attention_softmax(Tensor(a!) scores, Tensor? visible, float scale) -> ()", attention_softmax);
  m.def("attention_softmax_back(Tensor(a!) g, Tensor p, float scale) -> ()", attention_softmax_back);
  m.def("dropout(Tensor x, Tensor pool, Tensor offsets, bool relu) -> Tensor", dropout);
  m.def("relu_dropout_back(Tensor g, Tensor out, float keep) -> Tensor", relu_dropout_back);
  m.def("add_dropout(Tensor x, Tensor y, Tensor pool, Tensor offsets) -> Tensor", add_dropout);
}

}  // namespace seqlab
