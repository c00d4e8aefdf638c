"""DRAW of images whose classes are known: p(x | y), a bound on it, and samples of a chosen class.

With y the class of x as a row of K numbers, all 0 but a 1, both LSTMs are told of it at every
glimpse, beside what they hear in Eqs. 5 and 7:

    h_enc_t = LSTM_enc(h_enc_t-1, [r_t, h_dec_t-1, y])
    h_dec_t = LSTM_dec(h_dec_t-1, [z_t, y])

The weights that y meets, [K, 4 D] each, are parameters of their own, of which y chooses a row that
is added to the bias of the gates, once before all glimpses. The posterior is then a q(z | x, y),
and the loss, Eq. 12, a bound on -log p(x | y). These weights start at zero: the first values are
those of DRAW, and so are those of a network that starts from trained weights of DRAW.

The letters of the shapes are those of `draw_jax.models.draw`; K is the number of classes.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from draw_jax.attention import Array
from draw_jax.models import checks
from draw_jax.models.draw import DRAW
from draw_jax.models.gradients import Layer, Layers


class ClassConditional(DRAW):
  """DRAW given the class, with the fields of `DrawConfig`.

      model = ClassConditional(image_shape=(28, 28, 1), num_classes=10)
      terms = model.apply({'params': params}, x, key, label=label)
      canvas, _ = model.apply({'params': params}, 64, key, label=3, method='generate')

  Every method that computes takes `label`: a class for all images, one for each of them [B], or
  weights of the classes [B, K], such as those between two classes.

  Attributes:
    num_classes: K.
  """

  num_classes: int = 10

  neutral = ('label_encoder', 'label_decoder')

  def setup(self) -> None:
    super().setup()
    zeros, shape = nn.initializers.zeros, (self.num_classes, 4 * self.hidden)
    self.label_encoder = self.param('label_encoder', zeros, shape, self.param_dtype)
    self.label_decoder = self.param('label_decoder', zeros, shape, self.param_dtype)

  def layers_given(self, num: int, label: Any = None) -> Layers:
    large = super().layers_given(num)
    label = checks.label(label, num, self.num_classes)
    if label.ndim < 2:
      label = jax.nn.one_hot(label, self.num_classes)
    label = jnp.broadcast_to(label, (num, self.num_classes)).astype(self.param_dtype)

    def told(layer: Layer, weights: Array) -> Layer:
      return {**layer, 'bias': layer['bias'] + label @ weights}

    return {
      **large,
      'encoder': told(large['encoder'], self.label_encoder),
      'decoder': told(large['decoder'], self.label_decoder),
    }
