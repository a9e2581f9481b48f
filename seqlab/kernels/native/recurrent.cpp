// Recurrent layers over whole sequences, and back through time: the cells of E17, E24 and E25, and for each the
// gradients of E31. Their products with what the weights met (E32-E34) are left to the caller: one for each weight.
//
// All is time-major, [T, B, .]. `gates` come in as U x of all steps; W h + b is added in the scan, which leaves the
// gates' values there, and the scan back leaves the gradients of U x + b in their place. h and c have T + 1 steps, of
// which the first is the state before. Rows never meet, so that each thread takes some of them through all of time.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "check.h"
#include "product.h"

namespace seqlab {
namespace {

using at::Tensor;

constexpr int64_t kRowsAtLeast = 16;  // for a thread of its own

// ATen's exp is fast, within 2 ulp, and forgets NaN.
template <typename T>
Vec<T> exp(Vec<T> x) {
  return x.exp_u20() | (x != x);
}

template <typename T>
Vec<T> sigmoid(Vec<T> x) {
  return Vec<T>(1) / (Vec<T>(1) + exp(x.neg()));
}

inline Vec<double> tanh(Vec<double> x) { return x.tanh(); }

// Near 0, where 1 - 2 / (exp(2x) + 1) cancels, Cephes' polynomial.
inline Vec<float> tanh(Vec<float> x) {
  using V = Vec<float>;
  const V size = x.abs(), square = x * x;
  V near = at::vec::fmadd(square, V(-5.70498872745e-3f), V(2.06390887954e-2f));
  near = at::vec::fmadd(near, square, V(-5.37397155531e-2f));
  near = at::vec::fmadd(near, square, V(1.33314422036e-1f));
  near = at::vec::fmadd(near, square, V(-3.33332819422e-1f));
  near = at::vec::fmadd(near * square, x, x);
  const V far = (V(1) - V(2) / (exp(size + size) + V(1))) | (x & V(-0.0f));
  return V::blendv(far, near, size < V(0.625f));
}

// The derivatives of sigmoid and tanh, from their values.
template <typename T>
Vec<T> bell(Vec<T> y) {
  return y * (Vec<T>(1) - y);
}
template <typename T>
Vec<T> slope(Vec<T> y) {
  return Vec<T>(1) - y * y;
}

// f(load, store) for each vector of `size` features: load(p) of it, store(p, v) to it.
template <typename T, typename F>
inline __attribute__((always_inline)) void each(int64_t size, F f) {
  constexpr int64_t wide = Vec<T>::size();
  int64_t j = 0;
  for (; j + wide <= size; j += wide)
    f([j](const T* p) { return Vec<T>::loadu(p + j); }, [j](T* p, Vec<T> v) { v.store(p + j); });
  if (const int64_t n = size - j)
    f([j, n](const T* p) { return Vec<T>::loadu(p + j, n); }, [j, n](T* p, Vec<T> v) { v.store(p + j, n); });
}

// A time-major tensor, or one step of it, whose features lie side by side: its rows one by one, or some together.
template <typename T>
struct Series {
  explicit Series(const Tensor& x)
      : data(x.data_ptr<T>()), time(x.dim() == 3 ? x.stride(0) : 0), row(x.stride(-2)) {
    TORCH_CHECK(x.stride(-1) == 1 || x.size(-1) == 1, "features must lie side by side");
  }
  T* operator()(int64_t t, int64_t b) const { return data + t * time + b * row; }
  Rows<T> operator()(int64_t t, int64_t first, int64_t last, int64_t column = 0) const {
    return {(*this)(t, first) + column, row, last - first};
  }

  T* data;
  int64_t time, row;
};

// step(t, first, last) for each step of rows [first, last), forwards or back.
template <typename F>
void scan(const Tensor& gates, bool back, F step) {
  const int64_t last_step = gates.size(0) - 1;
  at::parallel_for(0, gates.size(1), kRowsAtLeast, [&](int64_t first, int64_t last) {
    for (int64_t t = 0; t <= last_step; ++t) step(back ? last_step - t : t, first, last);
  });
}

// W laid out for W h and, on the way back, for Wᵀ g.
template <typename T>
Packed<T> forwards(const Tensor& W) {
  return Packed<T>(W.data_ptr<T>(), W.size(1), W.size(0), W.stride(1), W.stride(0));
}
template <typename T>
Packed<T> backwards(const Tensor& W) {
  return Packed<T>(W.data_ptr<T>(), W.size(0), W.size(1), W.stride(0), W.stride(1));
}

// f(zero of x's type), for the two types there are.
template <typename F>
void typed(const Tensor& x, F f) {
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble, "float or double are needed");
  x.scalar_type() == at::kFloat ? f(float()) : f(double());
}

// A layer of so many gates: gates [T, B, gates H], W [gates H, H], and others of a step each, or of one step more.
void check_layer(const Tensor& gates, const Tensor& W, int64_t num_gates) {
  const auto type = gates.scalar_type();
  TORCH_CHECK(W.dim() == 2, "W must be a matrix");
  check_shape("gates", gates, type, {-1, -1, W.size(0)});
  check_shape("W", W, type, {-1, -1});
  TORCH_CHECK(W.size(0) == num_gates * W.size(1), "W must have ", num_gates, " blocks, not the shape ", W.sizes());
  TORCH_CHECK(gates.size(0) > 0, "gates must have a step");
}
void check_steps(const char* name, const Tensor& x, const Tensor& gates, const Tensor& W, int64_t more) {
  check_shape(name, x, gates.scalar_type(), {gates.size(0) + more, gates.size(1), W.size(1)});
}
void check_step(const char* name, const Tensor& x, const Tensor& gates, const Tensor& W) {
  check_shape(name, x, gates.scalar_type(), {gates.size(1), W.size(1)});
}
void check_bias(const Tensor& b, const Tensor& gates, int64_t size) {
  check_tensor("b", b, gates.scalar_type(), {size});
}

// a Wᵀ, for all steps at once.
Tensor times(const Tensor& a_, const Tensor& W_) {
  check_shape("a", a_, a_.scalar_type(), {-1, -1});
  TORCH_CHECK(a_.size(1) > 0, "a must have features");
  check_shape("W", W_, a_.scalar_type(), {-1, a_.size(1)});
  const Tensor out_ = at::empty({a_.size(0), W_.size(0)}, a_.options());
  typed(a_, [&](auto zero) {
    using T = decltype(zero);
    const Series<T> a(a_), out(out_);
    const Packed<T> W = forwards<T>(W_);
    at::parallel_for(0, a_.size(0), kBlock, [&](int64_t first, int64_t last) {
      for (int64_t end; first < last; first = end) {
        end = std::min(last, first + kBlock);
        multiply(a(0, first, end), W, out(0, first, end), false);
      }
    });
  });
  return out_;
}

// E17: h' = tanh(W h + U x + b), or relu.
void rnn(const Tensor& gates_, const Tensor& h_, const Tensor& W_, const Tensor& b_, bool relu) {
  check_layer(gates_, W_, 1), check_steps("h", h_, gates_, W_, 1), check_bias(b_, gates_, W_.size(0));
  const int64_t H = h_.size(2);
  typed(h_, [&](auto zero) {
    using T = decltype(zero);
    const Series<T> gates(gates_), h(h_);
    const Packed<T> W = forwards<T>(W_);
    const T* b = b_.data_ptr<T>();
    scan(gates_, false, [&](int64_t t, int64_t first, int64_t last) {
      multiply(h(t, first, last), W, gates(t, first, last), true);
      for (int64_t row = first; row < last; ++row) {
        T *a = gates(t, row), *after = h(t + 1, row);
        each<T>(H, [&](auto load, auto store) {
          const auto sum = load(a) + load(b);
          store(after, relu ? at::vec::clamp_min(sum, Vec<T>(0)) : tanh(sum));
        });
      }
    });
  });
}

void rnn_back(
    const Tensor& gates_, const Tensor& h_, const Tensor& W_, bool relu, const Tensor& g_out_, const Tensor& g_h_) {
  check_layer(gates_, W_, 1), check_steps("h", h_, gates_, W_, 1);
  check_steps("g_out", g_out_, gates_, W_, 0), check_step("g_h", g_h_, gates_, W_);
  const int64_t H = h_.size(2);
  typed(h_, [&](auto zero) {
    using T = decltype(zero);
    const Series<T> gates(gates_), h(h_), g_out(g_out_), g_h(g_h_);
    const Packed<T> W = backwards<T>(W_);
    scan(gates_, true, [&](int64_t t, int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        T *a = gates(t, row), *after = h(t + 1, row), *from = g_out(t, row), *g_row = g_h(0, row);
        each<T>(H, [&](auto load, auto store) {
          const auto now = load(after), g = load(from) + load(g_row);
          store(a, g * (relu ? (now > Vec<T>(0)) & Vec<T>(1) : slope(now)));
        });
      }
      multiply(gates(t, first, last), W, g_h(0, first, last), false);
    });
  });
}

// E24: i, f, o = σ(.), g = tanh(.); c' = f c + i g; h' = o tanh(c').
void lstm(const Tensor& gates_, const Tensor& h_, const Tensor& c_, const Tensor& W_, const Tensor& b_) {
  check_layer(gates_, W_, 4), check_steps("h", h_, gates_, W_, 1), check_steps("c", c_, gates_, W_, 1);
  check_bias(b_, gates_, W_.size(0));
  const int64_t H = h_.size(2);
  typed(h_, [&](auto zero) {
    using T = decltype(zero);
    const Series<T> gates(gates_), h(h_), c(c_);
    const Packed<T> W = forwards<T>(W_);
    const T* b = b_.data_ptr<T>();
    scan(gates_, false, [&](int64_t t, int64_t first, int64_t last) {
      multiply(h(t, first, last), W, gates(t, first, last), true);
      for (int64_t row = first; row < last; ++row) {
        T *a = gates(t, row), *before = c(t, row), *after = c(t + 1, row), *out = h(t + 1, row);
        each<T>(H, [&](auto load, auto store) {
          const auto sum = [&](int64_t gate) { return load(a + gate * H) + load(b + gate * H); };
          const auto i = sigmoid(sum(0)), f = sigmoid(sum(1)), g = tanh(sum(2)), o = sigmoid(sum(3));
          const auto now = f * load(before) + i * g;
          store(a, i), store(a + H, f), store(a + 2 * H, g), store(a + 3 * H, o);
          store(after, now), store(out, o * tanh(now));
        });
      }
    });
  });
}

void lstm_back(
    const Tensor& gates_, const Tensor& c_, const Tensor& W_, const Tensor& g_out_, const Tensor& g_h_,
    const Tensor& g_c_) {
  check_layer(gates_, W_, 4), check_steps("c", c_, gates_, W_, 1), check_steps("g_out", g_out_, gates_, W_, 0);
  check_step("g_h", g_h_, gates_, W_), check_step("g_c", g_c_, gates_, W_);
  const int64_t H = c_.size(2);
  typed(c_, [&](auto zero) {
    using T = decltype(zero);
    const Series<T> gates(gates_), c(c_), g_out(g_out_), g_h(g_h_), g_c(g_c_);
    const Packed<T> W = backwards<T>(W_);
    scan(gates_, true, [&](int64_t t, int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        T *a = gates(t, row), *before = c(t, row), *after = c(t + 1, row), *from = g_out(t, row);
        T *g_row = g_h(0, row), *g_cell = g_c(0, row);
        each<T>(H, [&](auto load, auto store) {
          const auto i = load(a), f = load(a + H), g = load(a + 2 * H), o = load(a + 3 * H);
          const auto squashed = tanh(load(after)), dh = load(from) + load(g_row);
          const auto dc = load(g_cell) + dh * o * slope(squashed);
          store(a, dc * g * bell(i)), store(a + H, dc * load(before) * bell(f));
          store(a + 2 * H, dc * i * slope(g)), store(a + 3 * H, dh * squashed * bell(o));
          store(g_cell, dc * f);
        });
      }
      multiply(gates(t, first, last), W, g_h(0, first, last), false);
    });
  });
}

// E25: r, u = σ(.), n = tanh(W (r h) + .); h' = (1 - u) h + u n. `reset` keeps r h.
void gru(const Tensor& gates_, const Tensor& h_, const Tensor& reset_, const Tensor& W_, const Tensor& b_) {
  check_layer(gates_, W_, 3), check_steps("h", h_, gates_, W_, 1), check_steps("reset", reset_, gates_, W_, 0);
  check_bias(b_, gates_, W_.size(0));
  const int64_t H = h_.size(2);
  typed(h_, [&](auto zero) {
    using T = decltype(zero);
    const Series<T> gates(gates_), h(h_), reset(reset_);
    const Packed<T> W_ru = forwards<T>(W_.slice(0, 0, 2 * H)), W_n = forwards<T>(W_.slice(0, 2 * H));
    const T* b = b_.data_ptr<T>();
    scan(gates_, false, [&](int64_t t, int64_t first, int64_t last) {
      multiply(h(t, first, last), W_ru, gates(t, first, last), true);
      for (int64_t row = first; row < last; ++row) {
        T *a = gates(t, row), *before = h(t, row), *kept = reset(t, row);
        each<T>(H, [&](auto load, auto store) {
          const auto r = sigmoid(load(a) + load(b)), u = sigmoid(load(a + H) + load(b + H));
          store(a, r), store(a + H, u), store(kept, r * load(before));
        });
      }
      multiply(reset(t, first, last), W_n, gates(t, first, last, 2 * H), true);
      for (int64_t row = first; row < last; ++row) {
        T *a = gates(t, row), *before = h(t, row), *after = h(t + 1, row);
        each<T>(H, [&](auto load, auto store) {
          const auto candidate = tanh(load(a + 2 * H) + load(b + 2 * H)), old = load(before);
          store(a + 2 * H, candidate), store(after, old + load(a + H) * (candidate - old));
        });
      }
    });
  });
}

void gru_back(const Tensor& gates_, const Tensor& h_, const Tensor& W_, const Tensor& g_out_, const Tensor& g_h_) {
  check_layer(gates_, W_, 3), check_steps("h", h_, gates_, W_, 1), check_steps("g_out", g_out_, gates_, W_, 0);
  check_step("g_h", g_h_, gates_, W_);
  const int64_t H = h_.size(2);
  const Tensor g_reset_ = at::empty_like(g_h_);
  typed(h_, [&](auto zero) {
    using T = decltype(zero);
    const Series<T> gates(gates_), h(h_), g_out(g_out_), g_h(g_h_), g_reset(g_reset_);
    const Packed<T> W_ru = backwards<T>(W_.slice(0, 0, 2 * H)), W_n = backwards<T>(W_.slice(0, 2 * H));
    scan(gates_, true, [&](int64_t t, int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        T *a = gates(t, row), *before = h(t, row), *from = g_out(t, row), *g_row = g_h(0, row);
        each<T>(H, [&](auto load, auto store) {
          const auto u = load(a + H), candidate = load(a + 2 * H), g = load(from) + load(g_row);
          store(a + H, g * (candidate - load(before)) * bell(u)), store(a + 2 * H, g * u * slope(candidate));
          store(g_row, g - g * u);
        });
      }
      multiply(gates(t, first, last, 2 * H), W_n, g_reset(0, first, last), false);
      for (int64_t row = first; row < last; ++row) {
        T *a = gates(t, row), *before = h(t, row), *g_row = g_h(0, row), *inner = g_reset(0, row);
        each<T>(H, [&](auto load, auto store) {
          const auto r = load(a), g = load(inner);
          store(a, g * load(before) * bell(r)), store(g_row, load(g_row) + g * r);
        });
      }
      multiply(gates(t, first, last), W_ru, g_h(0, first, last), true);
    });
  });
}

// E25 as torch has it: r, z = σ(.), n = tanh(. + r q) with q = W h + b_n; h' = (1 - z) n + z h. `inner` keeps q, and on
// the way back its gradient, which is that of U x + b times r.
void gru_torch(
    const Tensor& gates_, const Tensor& h_, const Tensor& inner_, const Tensor& W_, const Tensor& b_,
    const Tensor& b_n_) {
  check_layer(gates_, W_, 3), check_steps("h", h_, gates_, W_, 1), check_steps("inner", inner_, gates_, W_, 0);
  check_bias(b_, gates_, W_.size(0)), check_bias(b_n_, gates_, W_.size(1));
  const int64_t H = h_.size(2);
  typed(h_, [&](auto zero) {
    using T = decltype(zero);
    const Series<T> gates(gates_), h(h_), inner(inner_);
    const Packed<T> W_rz = forwards<T>(W_.slice(0, 0, 2 * H)), W_n = forwards<T>(W_.slice(0, 2 * H));
    const T *b = b_.data_ptr<T>(), *b_n = b_n_.data_ptr<T>();
    scan(gates_, false, [&](int64_t t, int64_t first, int64_t last) {
      multiply(h(t, first, last), W_rz, gates(t, first, last), true);
      multiply(h(t, first, last), W_n, inner(t, first, last), false);
      for (int64_t row = first; row < last; ++row) {
        T *a = gates(t, row), *kept = inner(t, row), *before = h(t, row), *after = h(t + 1, row);
        each<T>(H, [&](auto load, auto store) {
          const auto r = sigmoid(load(a) + load(b)), z = sigmoid(load(a + H) + load(b + H));
          const auto q = load(kept) + load(b_n), candidate = tanh(load(a + 2 * H) + load(b + 2 * H) + r * q);
          store(a, r), store(a + H, z), store(a + 2 * H, candidate), store(kept, q);
          store(after, candidate + z * (load(before) - candidate));
        });
      }
    });
  });
}

void gru_torch_back(
    const Tensor& gates_, const Tensor& h_, const Tensor& inner_, const Tensor& W_, const Tensor& g_out_,
    const Tensor& g_h_) {
  check_layer(gates_, W_, 3), check_steps("h", h_, gates_, W_, 1), check_steps("inner", inner_, gates_, W_, 0);
  check_steps("g_out", g_out_, gates_, W_, 0), check_step("g_h", g_h_, gates_, W_);
  const int64_t H = h_.size(2);
  typed(h_, [&](auto zero) {
    using T = decltype(zero);
    const Series<T> gates(gates_), h(h_), inner(inner_), g_out(g_out_), g_h(g_h_);
    const Packed<T> W_rz = backwards<T>(W_.slice(0, 0, 2 * H)), W_n = backwards<T>(W_.slice(0, 2 * H));
    scan(gates_, true, [&](int64_t t, int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        T *a = gates(t, row), *q = inner(t, row), *before = h(t, row);
        T *from = g_out(t, row), *g_row = g_h(0, row);
        each<T>(H, [&](auto load, auto store) {
          const auto r = load(a), z = load(a + H), candidate = load(a + 2 * H), g = load(from) + load(g_row);
          const auto g_n = (g - g * z) * slope(candidate);
          store(a, g_n * load(q) * bell(r)), store(a + H, g * (load(before) - candidate) * bell(z));
          store(a + 2 * H, g_n), store(q, g_n * r), store(g_row, g * z);
        });
      }
      multiply(gates(t, first, last), W_rz, g_h(0, first, last), true);
      multiply(inner(t, first, last), W_n, g_h(0, first, last), true);
    });
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seqlab, m) {
  m.def("times(Tensor a, Tensor W) -> Tensor", times);
  m.def("rnn(Tensor(a!) gates, Tensor(b!) h, Tensor W, Tensor b, bool relu) -> ()", rnn);
  m.def("rnn_back(Tensor(a!) gates, Tensor h, Tensor W, bool relu, Tensor g_out, Tensor(b!) g_h) -> ()", rnn_back);
  m.def("lstm(Tensor(a!) gates, Tensor(b!) h, Tensor(c!) c, Tensor W, Tensor b) -> ()", lstm);
  m.def("lstm_back(Tensor(a!) gates, Tensor c, Tensor W, Tensor g_out, Tensor(b!) g_h, Tensor(c!) g_c) -> ()", lstm_back);
  m.def("gru(Tensor(a!) gates, Tensor(b!) h, Tensor(c!) reset, Tensor W, Tensor b) -> ()", gru);
  m.def("gru_back(Tensor(a!) gates, Tensor h, Tensor W, Tensor g_out, Tensor(b!) g_h) -> ()", gru_back);
  m.def(
      "gru_torch(Tensor(a!) gates, Tensor(b!) h, Tensor(c!) inner, Tensor W, Tensor b, Tensor b_n) -> ()", gru_torch);
  m.def(
      "gru_torch_back(Tensor(a!) gates, Tensor h, Tensor(b!) inner, Tensor W, Tensor g_out, Tensor(c!) g_h) -> ()",
      gru_torch_back);
}

}  // namespace seqlab
