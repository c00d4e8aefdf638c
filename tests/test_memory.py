import jax.numpy as jnp
import numpy as np
import pytest

from draw_jax import memory
from draw_jax.errors import UserError


@pytest.mark.parametrize('allocate', [np.zeros, jnp.zeros])
def test_what_cannot_be_allocated_is_told_in_one_line(allocate):
  with pytest.raises(UserError, match='not enough memory') as caught, memory.explaining():
    allocate(10**15).sum()
  assert '\n' not in str(caught.value)


def test_other_errors_pass():
  with pytest.raises(ZeroDivisionError), memory.explaining():
    raise ZeroDivisionError
