'use strict';
/* What the web pages of draw_jax have in common: images, windows, bars and playing.

A window is [center x, center y, variance, stride, ...] in pixels from 0 in the middle of the first.
*/
const Drawing = (() => {
  const WRITE = 'rgb(255, 40, 40)', READ = 'rgb(0, 200, 60)';
  // As in draw_jax.figures.windows: a border as wide as sigma would hide a digit.
  const WIDTH_PER_SIGMA = .4, THINNEST = .012, THICKEST = .12;

  function make(parent, tag, className = '', text = '') {
    const child = document.createElement(tag);
    if (className) child.className = className;
    child.textContent = text;
    return parent.appendChild(child);
  }

  /* A canvas with enough pixels to be sharp at `size` pixels of the page along its longer side. */
  function makeCanvas(parent, height, width, size, label, className = '') {
    const canvas = make(parent, 'canvas', className), side = Math.max(height, width);
    const zoom = Math.max(1, Math.round(size * Math.max(1, window.devicePixelRatio || 1) / side));
    canvas.width = zoom * width;
    canvas.height = zoom * height;
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', label);
    return canvas;
  }

  /* Left, top, right and bottom of what shows a window, and the width of its border. */
  function rectangle([x, y, variance, stride], size, height, width) {
    const half = (size - 1) / 2 * stride, side = Math.max(height, width);
    const clip = (value, low, high) => Math.min(Math.max(value, low), high);
    return [
      clip(x - half, 0, width - 1), clip(y - half, 0, height - 1),
      clip(x + half, 0, width - 1), clip(y + half, 0, height - 1),
      clip(WIDTH_PER_SIGMA * Math.sqrt(variance), THINNEST * side, THICKEST * side),
    ];
  }

  /* Draws a window on a canvas that shows an image of H x W. */
  function mark(canvas, shown, size, height, width, color) {
    const context = canvas.getContext('2d'), zoom = canvas.width / width;
    const [left, top, right, bottom, line] = rectangle(shown, size, height, width);
    context.strokeStyle = color;
    context.lineWidth = Math.max(1, line * zoom);
    context.strokeRect((left + .5) * zoom, (top + .5) * zoom,
      (right - left) * zoom, (bottom - top) * zoom);
  }

  /* Shows an image [H, W, C] of intensities in [0, 1]; C is 1 for gray or 3 for color. */
  function paint(canvas, image, height, width) {
    const pixels = new ImageData(width, height), channels = image.length / height / width;
    for (let i = 0; i < height * width; i++) {
      for (let k = 0; k < 3; k++)
        pixels.data[4 * i + k] = Math.round(255 * image[i * channels + (channels === 3 ? k : 0)]);
      pixels.data[4 * i + 3] = 255;
    }
    const small = document.createElement('canvas');
    small.width = width;
    small.height = height;
    small.getContext('2d').putImageData(pixels, 0, 0);
    enlarge(canvas, small, 0, height, width);
  }

  /* Shows the H rows from `top` of a source that is W wide. */
  function enlarge(canvas, source, top, height, width) {
    const context = canvas.getContext('2d');
    context.imageSmoothingEnabled = false;
    context.drawImage(source, 0, top, width, height, 0, 0, canvas.width, canvas.height);
  }

  /* One bar for each of `steps` values, as far as there are some; that of step t stands out. */
  function bars(canvas, values, steps, t, highest) {
    const style = getComputedStyle(document.documentElement);
    const context = canvas.getContext('2d'), bar = canvas.width / steps;
    const width = Math.max(1, Math.min(.8 * bar, canvas.height));
    context.clearRect(0, 0, canvas.width, canvas.height);
    values.forEach((value, k) => {
      const height = Math.max(1, canvas.height * value / highest);
      const color = k === t ? '--now' : k < t ? '--ink' : '--faint';
      context.fillStyle = style.getPropertyValue(color);
      context.fillRect((k + .5) * bar - width / 2, canvas.height - height, width, height);
    });
  }

  return {WRITE, READ, make, makeCanvas, rectangle, mark, paint, enlarge, bars};
})();

/* Buttons and a slider that move through the glimpses; `show` is called at each move. */
class Playback {
  static SPEEDS = [['slow', 6], ['normal', 16], ['fast', 40]];
  static PAUSE = 2000;  // ms on the last glimpse, where it begins again

  constructor(parent, steps, show, again = false) {
    Object.assign(this, {parent, steps, show, again, t: 0, playing: true, due: 0});
    const part = (tag, name, where = parent) => {
      const child = Drawing.make(where, tag);
      child.dataset.part = name;
      return child;
    };
    parent.classList.add('playback');
    this.button = part('button', 'play');
    this.button.type = 'button';
    this.button.addEventListener('click', () => this.toggle());
    this.slider = part('input', 'glimpse');
    Object.assign(this.slider, {type: 'range', min: 1, max: steps, value: 1});
    this.slider.setAttribute('aria-label', 'Glimpse');
    this.slider.addEventListener('input', () => this.seek(this.slider.value - 1));
    this.count = part('output', 'count');
    const speed = Drawing.make(parent, 'label', '', 'Speed ');
    this.speed = part('select', 'speed', speed);
    for (const [name, value] of Playback.SPEEDS)
      this.speed.add(new Option(name, value, name === 'normal', name === 'normal'));
    const label = Drawing.make(parent, 'label');
    this.box = part('input', 'windows', label);
    Object.assign(this.box, {type: 'checkbox', checked: true});
    this.box.addEventListener('change', () => this.refresh());
    label.append(' Windows');
    if (window.matchMedia('(prefers-reduced-motion: reduce)').matches) {
      this.playing = false;
      this.t = steps - 1;
    }
    const tick = now => {
      this.tick(now);
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  get windows() {
    return this.box.checked;
  }

  /* Before each glimpse: whether it may be shown already. */
  isThere() {
    return true;
  }

  tick(now) {
    if (!this.playing || now < this.due || !this.parent.offsetParent) return;
    if (this.due) {
      const last = this.t === this.steps - 1;
      if (last && !this.again) {
        this.playing = false;
      } else {
        const next = last ? 0 : this.t + 1;
        if (!this.isThere(next)) return;
        this.t = next;
      }
    }
    const end = this.again && this.t === this.steps - 1;
    this.due = now + (end ? Playback.PAUSE : 1000 / this.speed.value);
    this.refresh();
  }

  refresh() {
    this.slider.value = this.t + 1;
    this.count.textContent = `glimpse ${this.t + 1} of ${this.steps}`;
    this.button.textContent = this.playing ? 'Pause' : 'Play';
    this.show(this.t);
  }

  seek(t) {
    this.playing = false;
    this.t = Math.min(Math.max(t, 0), this.steps - 1);
    this.refresh();
  }

  restart() {
    this.playing = true;
    this.due = this.t = 0;
  }

  toggle() {
    if (!this.playing && this.t === this.steps - 1) this.t = 0;
    this.playing = !this.playing;
    this.due = 0;
    this.refresh();
  }

  /* Space and the arrows, unless they are meant for what has the focus. */
  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches('button, input, select, summary, a, [tabindex]')) return;
    if (event.key === ' ') this.toggle();
    else if (event.key === 'ArrowRight') this.seek(this.t + 1);
    else if (event.key === 'ArrowLeft') this.seek(this.t - 1);
    else return;
    event.preventDefault();
  }
}
