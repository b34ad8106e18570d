for (const formula of document.querySelectorAll('.dtdg-card .math')) {
  const tex = formula.textContent.trim().replace(/^\$\$/, '').replace(/\$\$$/, '');
  katex.render(tex, formula, {displayMode: true, output: 'mathml'});
}
