'use strict';
/* An image of one channel to draw on with mouse, pen, finger or keys; others can only be chosen. */
class Pad {
  static MEMORY = 50;  // images that undo can bring back

  /* `changed(ended)` is called at each change; `ended` says whether the stroke is complete. */
  constructor(parent, model, size, label, changed) {
    const {height, width, channels} = model;
    Object.assign(this, {height, width, binary: model.binary, guide: model.guide, changed});
    this.drawn = new Float64Array(height * width * channels);  // intensities under the pen
    this.radius = Math.max(1.15, Math.max(height, width) / 56);
    this.past = [];
    this.last = this.cursor = null;
    this.canvas = Drawing.makeCanvas(parent, height, width, size, label, 'pad');
    if (channels === 1) this.listen();
  }

  /* What the network sees: binary pixels if it was trained on such. */
  get pixels() {
    return this.binary ? this.drawn.map(value => value >= .5 ? 1 : 0) : this.drawn.slice();
  }

  paint() {
    Drawing.paint(this.canvas, this.pixels, this.height, this.width);
    const context = this.canvas.getContext('2d'), zoom = this.canvas.width / this.width;
    context.lineWidth = Math.max(1, zoom / 20);
    if (this.guide && (this.last || this.isEmpty())) {
      const inset = this.guide * zoom;
      context.strokeStyle = 'rgba(255, 255, 255, .28)';
      context.strokeRect(inset, inset, this.canvas.width - 2 * inset, this.canvas.height - 2 * inset);
    }
    if (this.cursor && this.canvas === document.activeElement) {
      context.strokeStyle = 'rgb(90, 160, 255)';
      context.lineWidth = Math.max(2, zoom / 8);
      context.strokeRect(this.cursor[0] * zoom, this.cursor[1] * zoom, zoom, zoom);
    }
  }

  isEmpty() {
    return this.drawn.every(value => value === 0);
  }

  set(image) {
    this.remember();
    this.drawn = Float64Array.from(image);
    this.changed(true);
  }

  clear() {
    this.set(this.drawn.map(() => 0));
  }

  undo() {
    if (!this.past.length) return;
    this.drawn = this.past.pop();
    this.changed(true);
  }

  remember() {
    this.past = [...this.past, this.drawn.slice()].slice(-Pad.MEMORY);
  }

  /* Draws a straight line, in pixels from 0 at the edge. */
  line([x0, y0], [x1, y1]) {
    const length = (x1 - x0) ** 2 + (y1 - y0) ** 2;
    for (let y = 0; y < this.height; y++)
      for (let x = 0; x < this.width; x++) {
        const [dx, dy] = [x + .5 - x0, y + .5 - y0];
        const along = length && ((x1 - x0) * dx + (y1 - y0) * dy) / length;
        const place = Math.min(Math.max(along, 0), 1);
        const distance = Math.hypot(dx - place * (x1 - x0), dy - place * (y1 - y0));
        const cover = Math.min(Math.max(this.radius + .5 - distance, 0), 1), i = y * this.width + x;
        this.drawn[i] = Math.max(this.drawn[i], cover);
      }
  }

  listen() {
    const {canvas} = this;
    const place = event => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width * this.width,
        (event.clientY - box.top) / box.height * this.height];
    };
    const move = event => {
      if (!this.last) return;
      for (const e of event.getCoalescedEvents ? event.getCoalescedEvents() : []) this.draw(place(e));
      this.draw(place(event));
      this.changed(false);
    };
    const end = () => {
      if (!this.last) return;
      this.last = null;
      this.changed(true);
    };
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'application');
    canvas.addEventListener('pointerdown', event => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      this.cursor = null;
      this.remember();
      this.last = place(event);
      move(event);
    });
    canvas.addEventListener('pointermove', move);
    canvas.addEventListener('pointerup', end);
    canvas.addEventListener('pointercancel', end);
    canvas.addEventListener('keydown', event => this.onKey(event));
    canvas.addEventListener('blur', () => this.paint());
  }

  draw(place) {
    this.line(this.last, place);
    this.last = place;
  }

  /* Arrows move a cursor; with Shift they draw; Space draws a dot. */
  onKey(event) {
    if (event.ctrlKey || event.metaKey) {
      if (event.key === 'z') {
        this.undo();
        event.preventDefault();
      }
      return;
    }
    const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (!way && event.key !== ' ') return;
    event.preventDefault();
    const [x, y] = this.cursor || [this.width >> 1, this.height >> 1], [dx, dy] = way || [0, 0];
    this.cursor = [Math.min(Math.max(x + dx, 0), this.width - 1),
      Math.min(Math.max(y + dy, 0), this.height - 1)];
    if (!way || event.shiftKey) {
      this.remember();
      this.line([x + .5, y + .5], this.cursor.map(at => at + .5));
      this.changed(true);
    } else {
      this.paint();
    }
  }
}
