'use strict';
/* DRAW in plain JavaScript: arrays in, arrays out, no page.

The equations are those of draw_jax.models.draw, in float64; outputs.js has
what canvases say. Arrays are flat and in C order:

    B  examples of a batch           H, W  height and width of an image
    T  glimpses                      C     channels of an image
    N  filters along one side        M     channels of a canvas
    Z  latents of one glimpse        D     units of each LSTM
*/
const Engine = (() => {
  const RAW_LIMIT = 12;  // as in draw_jax.attention

  /* The tensors of a model by name, from bytes in the order of `entries`: {name, shape}. */
  function unpack(bytes, entries, dtype) {
    const half = dtype === 'float16', view = new DataView(bytes.buffer, bytes.byteOffset);
    const values = half ? halves() : null, tensors = {};
    let offset = 0;
    for (const {name, shape} of entries) {
      const data = new Float32Array(shape.reduce((a, b) => a * b, 1));
      for (let i = 0; i < data.length; i++, offset += half ? 2 : 4)
        data[i] = half ? values[view.getUint16(offset, true)] : view.getFloat32(offset, true);
      tensors[name] = {data, shape};
    }
    return tensors;
  }

  /* What each of the 2^16 numbers of 16 bits stands for; finite ones are all that occur. */
  function halves() {
    const values = new Float32Array(1 << 16);
    for (let bits = 0; bits < values.length; bits++) {
      const exponent = bits >> 10 & 31, fraction = bits & 1023;
      const size = exponent
        ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * fraction / 1024;
      values[bits] = bits >> 15 ? -size : size;
    }
    return values;
  }

  /* W(x) for x [B, I]: {kernel: [I, O], bias: [O]} gives [B, O]. `first` is where x's rows begin
  in the kernel; `bias` [B, O] may take the place of the layer's. */
  function linear(layer, x, num, first = 0, bias = null) {
    const {kernel, outputs} = layer, inputs = x.length / num;
    const result = new Float64Array(num * outputs);
    for (let b = 0; b < num; b++) {
      const sum = result.subarray(b * outputs, (b + 1) * outputs);
      sum.set(bias ? bias.subarray(b * outputs, (b + 1) * outputs) : layer.bias);
      let i = b * inputs, row = first * outputs;
      // Four rows at a time: a sum is loaded and stored once for four products.
      for (const end = (b + 1) * inputs - 3; i < end; i += 4, row += 4 * outputs) {
        const x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
        const row1 = row + outputs, row2 = row1 + outputs, row3 = row2 + outputs;
        for (let o = 0; o < outputs; o++)
          sum[o] += x0 * kernel[row + o] + x1 * kernel[row1 + o]
            + x2 * kernel[row2 + o] + x3 * kernel[row3 + o];
      }
      for (const end = (b + 1) * inputs; i < end; i++, row += outputs)
        for (let o = 0; o < outputs; o++) sum[o] += x[i] * kernel[row + o];
    }
    return result;
  }

  const sigmoid = x => 1 / (1 + Math.exp(-x));

  /* Rows of several arrays, each [B, .], one behind the other: [B, sum of .]. */
  function concatenate(arrays, num) {
    const sizes = arrays.map(a => a.length / num), size = sizes.reduce((a, b) => a + b, 0);
    const result = new Float64Array(num * size);
    for (let b = 0, at = 0; b < num; b++)
      arrays.forEach((a, k) => {
        result.set(a.subarray(b * sizes[k], (b + 1) * sizes[k]), at);
        at += sizes[k];
      });
    return result;
  }

  /* One step of an LSTM: {h, c}, each [B, D], changes in place. Gates as in models.layers.lstm. */
  function lstm(layer, state, inputs, num, first = 0, bias = null) {
    const gates = linear(layer, concatenate([...inputs, state.h], num), num, first, bias);
    const units = state.h.length / num, {h, c} = state;
    for (let b = 0, k = 0; b < num; b++)
      for (let d = 0, i = 4 * b * units; d < units; d++, k++, i++) {
        c[k] = sigmoid(gates[i + units]) * c[k] + sigmoid(gates[i]) * Math.tanh(gates[i + 2 * units]);
        h[k] = sigmoid(gates[i + 3 * units]) * Math.tanh(c[k]);
      }
  }

  /* Eqs. 21-24: [center x, center y, variance, stride, intensity] of the raw numbers [B, 5]. */
  function placeWindow(raw, size, height, width) {
    const windows = new Float64Array(raw.length);
    for (let i = 0; i < raw.length; i += 5) {
      const [x, y, variance, stride, intensity] =
        Array.from(raw.subarray(i, i + 5), r => Math.min(Math.max(r, -RAW_LIMIT), RAW_LIMIT));
      windows[i] = (width + 1) / 2 * (x + 1) - 1;
      windows[i + 1] = (height + 1) / 2 * (y + 1) - 1;
      windows[i + 2] = Math.exp(variance);
      windows[i + 3] = (Math.max(height, width) - 1) / Math.max(size - 1, 1) * Math.exp(stride);
      windows[i + 4] = Math.exp(intensity);
    }
    return windows;
  }

  /* Eqs. 25-26: [N, length], every row sums to one; stable as attention.filterbank is. */
  function filterbank(center, stride, variance, size, length) {
    const bank = new Float64Array(size * length);
    for (let n = 0; n < size; n++) {
      const mean = center + (n - (size - 1) / 2) * stride;
      const nearest = Math.min(Math.max(Math.round(mean), 0), length - 1);
      let sum = 0;
      for (let a = 0; a < length; a++)
        sum += bank[n * length + a] =
          Math.exp(-.5 * (a - nearest) * (a + nearest - 2 * mean) / variance);
      for (let a = 0; a < length; a++) bank[n * length + a] /= sum;
    }
    return bank;
  }

  function filterbanks(window, size, height, width) {
    const [x, y, variance, stride] = window;
    return [filterbank(y, stride, variance, size, height),
      filterbank(x, stride, variance, size, width)];
  }

  /* Eq. 27: gamma F_Y x F_X^T, [N, N, C] of an image [H, W, C]. */
  function read(image, window, size, height, width, channels) {
    const [fY, fX] = filterbanks(window, size, height, width);
    const rows = new Float64Array(size * width * channels), line = width * channels;
    for (let n = 0; n < size; n++)
      for (let y = 0; y < height; y++) {
        const weight = fY[n * height + y];
        for (let k = 0; k < line; k++) rows[n * line + k] += weight * image[y * line + k];
      }
    const patch = new Float64Array(size * size * channels);
    for (let n = 0; n < size; n++)
      for (let m = 0; m < size; m++)
        for (let x = 0; x < width; x++)
          for (let k = 0; k < channels; k++)
            patch[(n * size + m) * channels + k] +=
              window[4] * fX[m * width + x] * rows[n * line + x * channels + k];
    return patch;
  }

  /* Eq. 29: adds (1 / gamma) F_Y^T w F_X, of a patch [N, N, C], to a canvas [H, W, C]. */
  function write(canvas, patch, window, size, height, width, channels) {
    const [fY, fX] = filterbanks(window, size, height, width), line = width * channels;
    const columns = new Float64Array(size * line);
    for (let n = 0; n < size; n++)
      for (let m = 0; m < size; m++)
        for (let x = 0; x < width; x++)
          for (let k = 0; k < channels; k++)
            columns[n * line + x * channels + k] +=
              patch[(n * size + m) * channels + k] * fX[m * width + x] / window[4];
    for (let y = 0; y < height; y++)
      for (let n = 0; n < size; n++) {
        const weight = fY[n * height + y];
        for (let k = 0; k < line; k++) canvas[y * line + k] += weight * columns[n * line + k];
      }
  }

  class Network {
    /* `config` as draw_jax.figures.live describes a model, `tensors` as `unpack` gives them. */
    constructor(config, tensors) {
      Object.assign(this, config);
      this.output = Outputs[config.output](config.channels, config.components);
      this.tensors = tensors;
      this.pixels = this.height * this.width * this.channels;
      const layer = name => tensors[`${name}/kernel`] && {
        kernel: tensors[`${name}/kernel`].data,
        bias: tensors[`${name}/bias`].data,
        outputs: tensors[`${name}/bias`].data.length,
      };
      this.layers = {};
      for (const name of ['encoder', 'decoder', 'posterior', 'write', 'read_window', 'write_window',
        'prior_statistics', 'mixing']) this.layers[name] = layer(name);
    }

    /* The state before the first glimpse at `images` [B, H, W, C], or of `num` drawings without. */
    start(num, images = null) {
      const repeat = name => {
        const {data} = this.tensors[name], result = new Float64Array(num * data.length);
        for (let b = 0; b < num; b++) result.set(data, b * data.length);
        return result;
      };
      const unit = name => ({h: repeat(`${name}/h`), c: repeat(`${name}/c`)});
      const state = {
        num, images, canvas: repeat('canvas'), encoder: unit('encoder'), decoder: unit('decoder'),
      };
      // Without attention the encoder sees all of the image each time: it is multiplied once.
      if (images && !this.attention)
        state.seen = linear(this.layers.encoder, Float64Array.from(images), num);
      return state;
    }

    /* Eqs. 3-8: one glimpse with the noise [B, Z] of its latents. */
    look(state, noise) {
      const {num} = state, {glimpse, windows} = this.read(state);
      const prior = this.prior(state);
      const first = this.attention ? 0 : this.pixels;
      lstm(this.layers.encoder, state.encoder, [glimpse, state.decoder.h], num, first, state.seen);
      const {latents, kl} = this.posterior(state, noise, prior);
      return {...this.draw(state, latents), read: windows, kl, latents};
    }

    /* Eqs. 13-15: one glimpse of a drawing from the prior with this noise [B, Z]. */
    imagine(state, noise) {
      const prior = this.prior(state);
      return this.draw(state, prior ? noise.map((e, i) => prior.mean[i] + prior.std[i] * e) : noise);
    }

    /* Eqs. 14-15: one step of the decoder with latents [B, Z]; where it wrote, [B, 5] or null. */
    draw(state, latents) {
      const {num, canvas} = state;
      lstm(this.layers.decoder, state.decoder, [Float64Array.from(latents)], num);
      const change = linear(this.layers.write, state.decoder.h, num);
      if (!this.attention) {
        for (let i = 0; i < canvas.length; i++) canvas[i] += change[i];
        return {write: null};
      }
      const windows = this.place('write_window', state, this.writeSize);
      const size = canvas.length / num, patch = change.length / num;
      for (let b = 0; b < num; b++)
        write(canvas.subarray(b * size, (b + 1) * size), change.subarray(b * patch, (b + 1) * patch),
          windows.subarray(5 * b, 5 * b + 5), this.writeSize, this.height, this.width,
          size / this.height / this.width);
      return {write: windows};
    }

    /* Eq. 9: -log D(x | c) of each image, in nats. */
    reconstruction({num, canvas, images}) {
      const size = canvas.length / num;
      return Array.from({length: num}, (_, b) => -this.output.logProb(
        canvas.subarray(b * size, (b + 1) * size),
        images.subarray(b * this.pixels, (b + 1) * this.pixels)));
    }

    /* Mean images of canvases, in [0, 1]. */
    mean(canvas) {
      return this.output.mean(canvas);
    }

    /* Eq. 17 or 27: what the encoder sees, and through which windows. */
    read({num, images, canvas, decoder}) {
      const {height, width, channels, pixels, readSize} = this;
      const error = this.mean(canvas).map((m, i) => images[i] - m);
      if (!this.attention) return {glimpse: error, windows: null};
      const windows = this.place('read_window', {num, decoder}, readSize), patches = [];
      for (let b = 0; b < num; b++)
        for (const image of [images, error])
          patches.push(read(image.subarray(b * pixels, (b + 1) * pixels),
            windows.subarray(5 * b, 5 * b + 5), readSize, height, width, channels));
      return {glimpse: concatenate(patches, 1), windows};
    }

    place(name, {num, decoder}, size) {
      return placeWindow(linear(this.layers[name], decoder.h, num), size, this.height, this.width);
    }

    /* The learned prior {mean, std}, each [B, Z]; null: the standard normal. */
    prior({num, decoder}) {
      const layer = this.layers.prior_statistics;
      if (!layer) return null;
      return split(linear(layer, decoder.h, num), num);
    }

    /* Eqs. 1-2 and 11: the latents [B, Z] that this noise draws, and their KL [B] in nats. */
    posterior({num, encoder}, noise, prior) {
      const {mean, std} = split(linear(this.layers.posterior, encoder.h, num), num);
      const mixing = this.layers.mixing && linear(this.layers.mixing, encoder.h, num);
      const count = mean.length / num, latents = new Float64Array(mean.length);
      const kl = new Float64Array(num);
      for (let b = 0, k = 0, m = 0; b < num; b++)
        for (let z = 0; z < count; z++, k++) {
          const unit = prior ? prior.std[k] : 1, center = prior ? prior.mean[k] : 0;
          let squares = ((mean[k] - center) / unit) ** 2 + (std[k] / unit) ** 2;
          latents[k] = mean[k] + std[k] * noise[k];
          for (let j = 0; mixing && j < z; j++, m++) {  // The rows below the diagonal.
            latents[k] += mixing[m] * noise[b * count + j];
            squares += (mixing[m] / unit) ** 2;
          }
          kl[b] += .5 * (squares - 1) - Math.log(std[k] / unit);
        }
      return {latents, kl};
    }
  }

  /* [B, 2 Z] of means and log standard deviations: {mean, std}, each [B, Z]. */
  function split(statistics, num) {
    const count = statistics.length / num / 2;
    const mean = new Float64Array(num * count), std = new Float64Array(num * count);
    for (let b = 0, k = 0; b < num; b++)
      for (let z = 0, i = 2 * b * count; z < count; z++, k++, i++) {
        mean[k] = statistics[i];
        std[k] = Math.exp(statistics[i + count]);
      }
    return {mean, std};
  }

  /* [T, B, Z] standard normal; example i depends on the seed and on `first` + i alone. */
  function normal(seed, glimpses, num, latents, first = 0) {
    const result = new Float64Array(glimpses * num * latents);
    for (let b = 0; b < num; b++) {
      const uniform = random(seed, first + b);
      for (let t = 0; t < glimpses; t++)
        for (let z = 0; z < latents; z++)
          result[(t * num + b) * latents + z] =
            Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
    }
    return result;
  }

  /* A stream of numbers in [0, 1): the generator sfc32 of Chris Doty-Humphrey. */
  function random(seed, stream) {
    let a = seed | 0, b = stream | 0, c = 0x9e3779b9 | 0, counter = 1;
    const next = () => {
      const sum = (a + b | 0) + counter | 0;
      counter = counter + 1 | 0;
      a = b ^ b >>> 9;
      b = c + (c << 3) | 0;
      c = (c << 21 | c >>> 11) + sum | 0;
      return (sum >>> 0) / 2 ** 32;
    };
    for (let i = 0; i < 20; i++) next();  // until the seed has reached every bit
    return next;
  }

  return {unpack, Network, filterbank, normal};
})();
