// All changes with what they did, as a table. Python side: changes.py.

const OUTCOME = 4, FIRST_NUMBER = 5 // columns

export function render({model, el}) {
  const count = dlMake("span"), body = dlMake("tbody"), head = dlMake("tr"), hint = dlMake("p", {class: "dl-hint"})
  const csv = dlMake("button", {type: "button", class: "dl-link", onclick: () => {
    const {heads, rows} = JSON.parse(model.content)
    dlSave("changes.csv", "text/csv", dlCsv([["Number", ...heads], ...rows.map(({number, cells}) => [number, ...cells])]))
  }}, "CSV")
  const fold = dlMake("details", {class: "dl-fold"}, dlMake("summary", {}, "Changes and their effects ", count),
    dlMake("div", {class: "around"}, dlMake("table", {class: "dl-table"}, dlMake("thead", {}, head), body), dlMake("div", {class: "foot"}, hint, csv)))
  el.append(dlStyle(), fold)
  fold.addEventListener("toggle", () => model.send_msg(JSON.stringify({open: fold.open})))

  function draw() {
    const content = JSON.parse(model.content)
    fold.hidden = !content?.rows.length
    if (fold.hidden) return
    dlText(count, `(${content.rows.length})`)
    dlText(hint, content.hint)
    head.replaceChildren(dlMake("th", {scope: "col", "aria-label": "Number"}), ...content.heads.map((title, at) => dlMake("th", {scope: "col", class: at >= FIRST_NUMBER ? "right" : null}, title)), dlMake("th"))
    body.replaceChildren(...content.rows.map(({number, state, cells, undo}) => dlMake("tr", {class: state.replace(" ", "-"), "data-number": number},
      dlMake("td", {}, dlMake("span", {class: "dl-number"}, String(number))),
      ...cells.map((cell, at) => dlMake("td", {class: at === OUTCOME ? "outcome" : at >= FIRST_NUMBER ? "right" : null}, cell)),
      dlMake("td", {}, undo ? dlMake("button", {type: "button", class: "dl-link", "aria-label": `Undo change ${number}`, onclick: () => model.send_msg(JSON.stringify({undo: number}))}, "Undo") : ""))))
  }
  const onShow = () => { fold.open = true; fold.scrollIntoView({block: "nearest"}) }
  window.addEventListener("dtdg-lab-effects", onShow)
  model.on("content", draw)
  model.on("remove", () => window.removeEventListener("dtdg-lab-effects", onShow))
  draw()
}
