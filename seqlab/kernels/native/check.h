// What an operator asks of its arguments before it reads a number of them: kind, shape, order in memory, and range.

#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace seqlab {

// A tensor of this kind in the memory of the processor, of these sizes (-1: any).
inline void check_shape(const char* name, const at::Tensor& x, at::ScalarType type, at::IntArrayRef sizes) {
  TORCH_CHECK(x.defined() && x.device().is_cpu() && x.layout() == at::kStrided, name, " must be a dense tensor on the CPU");
  TORCH_CHECK(x.scalar_type() == type, name, " must be of ", type, ", not of ", x.scalar_type());
  bool fits = x.dim() == static_cast<int64_t>(sizes.size());
  for (size_t i = 0; fits && i < sizes.size(); ++i) fits = sizes[i] < 0 || x.size(i) == sizes[i];
  TORCH_CHECK(fits, name, " must be of shape ", sizes, " (-1: any), not ", x.sizes());
}

// The same, without holes between its numbers.
inline void check_tensor(const char* name, const at::Tensor& x, at::ScalarType type, at::IntArrayRef sizes) {
  check_shape(name, x, type, sizes);
  TORCH_CHECK(x.is_contiguous(), name, " must be contiguous");
}

// Whole numbers from `least` up to, and without, `end`.
inline void check_range(const char* name, const at::Tensor& x, int64_t least, int64_t end) {
  const int64_t* values = x.const_data_ptr<int64_t>();
  bool inside = true;
  for (int64_t i = 0; i < x.numel(); ++i) inside &= values[i] >= least && values[i] < end;
  TORCH_CHECK(inside, name, " must be at least ", least, " and below ", end);
}

}  // namespace seqlab
