// Formulas by KaTeX as MathML, which needs no fonts; figures by the plotly.js beside this file, loaded where there is one.
document.addEventListener("DOMContentLoaded", () => {
  for (const formula of document.querySelectorAll(".arithmatex")) {
    const tex = formula.textContent.trim().replace(/^\\[([]|\\[)\]]$/g, "")
    katex.render(tex, formula, {displayMode: formula.tagName === "DIV", output: "mathml", throwOnError: false})
  }
  const figures = document.querySelectorAll(".lab-figure")
  if (!figures.length) return
  const library = document.createElement("script")
  library.src = new URL("plotly.min.js", document.querySelector("script[src$='site.js']").src)
  library.onload = () => {
    const seen = new IntersectionObserver(entries => {
      for (const entry of entries.filter(each => each.isIntersecting)) {
        seen.unobserve(entry.target)
        const figure = JSON.parse(entry.target.nextElementSibling.textContent)
        if (figure.layout.height) entry.target.style.height = entry.target.style.minHeight = `${figure.layout.height}px`
        Plotly.newPlot(entry.target, figure.data, figure.layout, {displayModeBar: false, responsive: true})
      }
    }, {rootMargin: "400px"})
    figures.forEach(figure => seen.observe(figure))
  }
  document.head.append(library)
})
