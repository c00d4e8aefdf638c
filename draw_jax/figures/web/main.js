'use strict';
/* Puts the page together: the model, the worker, the tabs and what there is to start from. */
class App {
  static FROM_NETWORK = 10;  // images to start from, where none came with the page

  constructor() {
    const text = id => document.getElementById(id).textContent;
    const packed = JSON.parse(text('model'));
    this.network = new Network(packed, `${text('engine')}\n${text('worker')}`);
    this.model = packed;
    this.engine = new Engine.Network(packed, {});  // For means: it has no weights.
    delete packed.weights;
    this.views = {
      draw: new DrawView(this, document.getElementById('draw')),
      generate: new GenerateView(this, document.getElementById('generate')),
      interpolate: new InterpolateView(this, document.getElementById('interpolate')),
    };
    this.tabs = [...document.querySelectorAll('[role=tab]')];
    this.tabs.forEach(tab => {
      tab.addEventListener('click', () => this.open(tab));
      tab.addEventListener('keydown', event => this.onTabKey(event));
    });
    document.addEventListener('keydown', event => {
      if (event.defaultPrevented) return;  // It was for a drawing.
      if (event.key === 'z' && (event.ctrlKey || event.metaKey) && this.name === 'draw')
        this.views.draw.pad.undo();
      else this.views[this.name].playback.onKey(event);
    });
    this.open(this.tabs[0]);
    this.findStarts();
  }

  open(tab) {
    this.name = tab.getAttribute('aria-controls');
    for (const other of this.tabs) {
      const chosen = other === tab;
      other.setAttribute('aria-selected', chosen);
      other.tabIndex = chosen ? 0 : -1;
      document.getElementById(other.getAttribute('aria-controls')).hidden = !chosen;
    }
    const view = this.views[this.name];
    if (view.opened) view.opened();
  }

  onTabKey(event) {
    const way = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!way) return;
    const {length} = this.tabs, at = this.tabs.indexOf(event.target);
    const tab = this.tabs[(at + way + length) % length];
    tab.focus();
    this.open(tab);
    event.preventDefault();
  }

  /* Images to start from: those of the page, or else some that the network draws. */
  findStarts() {
    const {height, width, channels, images, glimpses, latent, binary} = this.model;
    const size = height * width * channels;
    if (images) {
      const bytes = Uint8Array.from(atob(images.data), c => c.charCodeAt(0));
      const all = Array.from({length: bytes.length / size}, (_, i) =>
        Float64Array.from(bytes.subarray(i * size, (i + 1) * size), value => value / 255));
      this.showStarts(all, images.label);
      return;
    }
    const num = App.FROM_NETWORK, inputs = Engine.normal(0, glimpses, num, latent);
    this.network.run('starts', {kind: 'imagine', num, inputs}, trace => {
      if (!trace.done) return;
      const mean = this.engine.mean(trace.glimpses[glimpses - 1].canvas);
      const all = Array.from({length: num}, (_, i) =>
        Float64Array.from(mean.subarray(i * size, (i + 1) * size),
          value => binary ? Math.round(value) : value));
      this.showStarts(all, 'Drawn by the network');
    });
  }

  showStarts(images, label) {
    const {draw, interpolate} = this.views;
    const pads = [[draw.find('.starts'), draw.pad],
      ...interpolate.pads.map((pad, i) => [interpolate.find(i ? '.last .starts' : '.first .starts'), pad])];
    for (const [parent, pad] of pads) {
      Drawing.make(parent, 'p', 'label', `${label}:`);
      const row = Drawing.make(parent, 'div', 'row');
      images.forEach((image, i) => {
        const button = Drawing.make(row, 'button', 'start');
        button.type = 'button';
        button.addEventListener('click', () => pad.set(image));
        const {height, width} = this.model;
        Drawing.paint(Drawing.makeCanvas(button, height, width, 44, `${label}, ${i + 1}`), image,
          height, width);
      });
    }
    interpolate.pads.forEach((pad, i) => pad.set(images[(3 + 4 * i) % images.length]));
    if (draw.pad.isEmpty()) draw.pad.set(images[2 % images.length]);
    document.body.dataset.ready = 'true';
  }
}

const app = new App();
document.body.dataset.started = 'true';
