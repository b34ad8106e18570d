// The table "Who got there first". Python side: arrival_table.py.

const BARRED = 2 // columns from the left that may have bars

export function render({model, el}) {
  const head = dlMake("tr"), body = dlMake("tbody"), unit = dlMake("span", {class: "unit"})
  const csv = dlMake("button", {type: "button", class: "dl-link", onclick: () => {
    const {columns, lines} = JSON.parse(model.content)
    dlSave("comparison.csv", "text/csv", dlCsv([["Run", ...columns], ...lines.map(({name, cells}) => [name, ...cells.map(({text}) => text)])]))
  }}, "CSV")
  const card = dlMake("section", {class: "dl-box dl-arrivals", "aria-label": "Who got there first"},
    dlMake("div", {class: "top"}, dlMake("h2", {}, "Who got there first"), unit, csv),
    dlMake("div", {class: "around"}, dlMake("table", {class: "dl-table"}, dlMake("thead", {}, head), body)))
  el.append(dlStyle(), card)
  const side = (place) => place < BARRED ? null : "right"
  const classes = (...names) => names.filter((name) => name).join(" ") || null

  function draw() {
    const content = JSON.parse(model.content)
    card.hidden = !content?.lines.length
    if (card.hidden) return
    const colours = (colour) => dlIsDark(el) ? dlDarkened(colour) : colour
    dlText(unit, content.target)
    head.replaceChildren(dlMake("th", {scope: "col"}, "Run"), ...content.columns.map((title, place) => dlMake("th", {scope: "col", class: side(place)}, title)))
    body.replaceChildren(...content.lines.map(({name, colour, has_arrived, cells}) => {
      const swatch = dlMake("i", {class: "swatch"})
      swatch.style.background = colours(colour)
      return dlMake("tr", {}, dlMake("td", {}, swatch, name), ...cells.map(({text, share, is_best}, place) => {
        if (share === null) return dlMake("td", {class: classes(place < BARRED && !has_arrived ? "missing" : side(place), is_best && "best")}, text)
        const bar = dlMake("i", {class: "bar"})
        bar.style.width = `${100 * share}%`
        bar.style.background = colours(colour)
        return dlMake("td", {class: classes("barred", is_best && "best")}, dlMake("span", {}, bar, dlMake("b", {}, text)))
      }))
    }))
  }
  model.on("content", draw)
  window.addEventListener("dtdg-lab-theme", draw)
  model.on("remove", () => window.removeEventListener("dtdg-lab-theme", draw))
  draw()
}
