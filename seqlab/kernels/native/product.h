// Matrix products for a recurrence: its weights meet some tens of rows at each of many steps, so that they are laid out
// for the processor once, and not at each product as a BLAS must. The plan is Goto's and van de Geijn's (2008): a tile
// of sums in registers, a panel of one factor in the first cache, a block of the other in the second.
//
// Each row of a product is summed in the same order, whatever rows stand beside it.

#pragma once

#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <memory>

namespace seqlab {

template <typename T>
using Vec = at::vec::Vectorized<T>;

constexpr int64_t kDepth = 256;  // of a panel
constexpr int64_t kBlock = 96;   // rows that pass a panel together

// Rows of a matrix, each with its features side by side.
template <typename T>
struct Rows {
  T* at(int64_t row) const { return data + row * stride; }

  T* data;
  int64_t stride, count;
};

// W [inner, cols] as panels, two vectors wide: W[k, j] is at W + k * down + j * across.
template <typename T>
struct Packed {
  static constexpr int64_t kWidth = 2 * Vec<T>::size();

  Packed(const T* W, int64_t inner, int64_t cols, int64_t down, int64_t across)
      : inner(inner), cols(cols), values(new T[inner * ((cols + kWidth - 1) / kWidth) * kWidth]) {
    T* next = values.get();
    for (int64_t top = 0; top < inner; top += kDepth)
      for (int64_t left = 0; left < cols; left += kWidth)
        for (int64_t k = top; k < std::min(inner, top + kDepth); ++k, next += kWidth)
          for (int64_t j = 0; j < kWidth; ++j) next[j] = left + j < cols ? W[k * down + (left + j) * across] : T(0);
  }

  // f(panel, its depth, its first row and column in W, its width without padding)
  template <typename F>
  void panels(F f) const {
    const T* panel = values.get();
    for (int64_t top = 0; top < inner; top += kDepth)
      for (int64_t left = 0, depth = std::min(kDepth, inner - top); left < cols; left += kWidth, panel += depth * kWidth)
        f(panel, depth, top, left, std::min(kWidth, cols - left));
  }

  int64_t inner, cols;
  std::unique_ptr<T[]> values;
};

// out = a panel, or out += a panel, for R rows of a.
template <typename T, int R>
inline __attribute__((always_inline)) void tile(
    const T* a, int64_t a_row, const T* panel, int64_t depth, T* out, int64_t out_row, int64_t width, bool add) {
  constexpr int64_t size = Vec<T>::size();
  const int64_t left = std::min(width, size), right = width - left;
  Vec<T> sum[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    sum[r][0] = add ? Vec<T>::loadu(out + r * out_row, left) : Vec<T>(0);
    sum[r][1] = add && right ? Vec<T>::loadu(out + r * out_row + size, right) : Vec<T>(0);
  }
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k) {
    const Vec<T> w0 = Vec<T>::loadu(panel + 2 * size * k), w1 = Vec<T>::loadu(panel + 2 * size * k + size);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec<T> x(a[r * a_row + k]);
      sum[r][0] = at::vec::fmadd(x, w0, sum[r][0]);
      sum[r][1] = at::vec::fmadd(x, w1, sum[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    sum[r][0].store(out + r * out_row, left);
    if (right) sum[r][1].store(out + r * out_row + size, right);
  }
}

// f<R>(first) for tiles of R rows, at most six and all of nearly the same size.
template <typename F>
inline __attribute__((always_inline)) void tiles(int64_t rows, F f) {
  for (int64_t first = 0, r, left = (rows + 5) / 6; first < rows; first += r, --left) {
    r = (rows - first + left - 1) / left;
    switch (r) {
      case 6: f.template operator()<6>(first); break;
      case 5: f.template operator()<5>(first); break;
      case 4: f.template operator()<4>(first); break;
      case 3: f.template operator()<3>(first); break;
      case 2: f.template operator()<2>(first); break;
      default: f.template operator()<1>(first);
    }
  }
}

// out = a W, or out += a W.
template <typename T>
void multiply(Rows<T> a, const Packed<T>& W, Rows<T> out, bool add) {
  W.panels([&](const T* panel, int64_t depth, int64_t top, int64_t left, int64_t width) {
    tiles(a.count, [&]<int R>(int64_t r) __attribute__((always_inline)) {
      tile<T, R>(a.at(r) + top, a.stride, panel, depth, out.at(r) + left, out.stride, width, add || top);
    });
  });
}

}  // namespace seqlab
