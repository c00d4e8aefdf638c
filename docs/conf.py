"""How Sphinx makes the documentation site: `bash launch/docs.sh`.

The folder of sources is that of the checkout, so that README.md, CONTRIBUTING.md and others are
pages of the site as they are, with their links and pictures.
"""

import importlib.metadata
import os
import pathlib
import sys

# JAX is imported for the signatures, and computes nothing.
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
sys.path.insert(0, str(pathlib.Path(__file__).parent / 'extensions'))

project = 'draw_jax'
author = 'the authors of draw_jax'
project_copyright = author
version = release = importlib.metadata.version('draw_jax')

extensions = ['myst_nb', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon', 'docstrings', 'mathml']
root_doc = 'docs/index'
include_patterns = [
  'docs/**.md',
  '*.md',
  'experiments/README.md',
  'experiments/notebooks/*.ipynb',
  'draw_jax/pretrained/*.md',
]
exclude_patterns = ['.*', 'runs', 'site', 'build', 'tests']

# Nothing is fetched, when a page is made or when it is read.
html_theme = 'furo'
html_title = f'draw_jax {version}'
html_static_path = ['web/style.css']
html_css_files = ['style.css']
html_extra_path = ['web/index.html']
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
html_math_renderer = 'mathml'
html_theme_options = {'sidebar_hide_name': False}
pygments_style = 'friendly'

myst_enable_extensions = ['dollarmath', 'attrs_inline', 'colon_fence']
myst_heading_anchors = 3
highlight_language = 'none'
nb_execution_mode = 'off'  # They ship with their outputs.
nb_ipywidgets_js = {}
nb_merge_streams = True

autodoc_member_order = 'bysource'
autodoc_typehints_format = 'short'
autodoc_default_options = {
  'members': True,
  'special-members': '__call__',
}
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
# Docstrings have names of Python in single backticks.
default_role = 'py:obj'
maximum_signature_line_length = 90
add_module_names = False
toc_object_entries_show_parents = 'hide'
