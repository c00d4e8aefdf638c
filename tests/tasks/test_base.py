import jax
import numpy as np

from draw_jax.tasks import base


def test_bytes_become_intensities_on_the_device():
  values = np.arange(256, dtype=np.uint8)
  result = np.asarray(jax.jit(base.to_device_float)(values))
  assert result.dtype == np.float32
  assert result[0] == 0 and result[255] == 1
  np.testing.assert_allclose(result, values / 255, rtol=1e-6)
