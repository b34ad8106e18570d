{# in the system's theme, on paper in the light one #}
{{ theme_script()|safe }}
const figures = JSON.parse(document.getElementById('figures').textContent);
function draw(dark) {
  for (const sign of document.querySelectorAll('[data-colour]'))
    sign.style.color = dark ? dlDarkened(sign.dataset.colour) : sign.dataset.colour;
  for (const [name, figure] of Object.entries(figures)) {
    const shown = dlFigure(figure, dark);
    Plotly.react('plot-' + name, shown.data, shown.layout,
      {responsive: true, displaylogo: false, displayModeBar: false});
  }
}
draw(dlOsDark.matches);
dlOsDark.addEventListener('change', () => draw(dlOsDark.matches));
window.addEventListener('beforeprint', () => {
  draw(false);
  Object.keys(figures).forEach(name => Plotly.Plots.resize('plot-' + name));
});
window.addEventListener('afterprint', () => draw(dlOsDark.matches));
