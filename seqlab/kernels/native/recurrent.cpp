// Recurrent layers over whole sequences, forward and backward through time.

#include <ATen/core/Tensor.h>
#include <torch/library.h>
#include <ATen/ops/addmm.h>

static at::Tensor try_it(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) { return at::addmm(a, b, c); }

TORCH_LIBRARY_FRAGMENT(seqlab, m) { m.def("try_it(Tensor a, Tensor b, Tensor c) -> Tensor", try_it); }
