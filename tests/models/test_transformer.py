import torch

from seqlab.models.transformer import LARGE, empty_pages


def test_huge_pages_behave_like_other_memory():
    like = torch.zeros(0, dtype=torch.float64)
    for rows in (3, LARGE // 8 // 1024 + 1):
        numbers = empty_pages(rows, 1024, like=like)
        numbers[-1] = torch.arange(1024.0)
        assert numbers.shape == (rows, 1024)
        assert numbers.dtype == torch.float64
        assert numbers.is_contiguous()
        assert numbers[-1].sum() == 1023 * 512
