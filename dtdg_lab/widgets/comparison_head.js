// What stands over a comparison: buttons, headline, and a notice whose details are a dialog. Python side: comparison_head.py.

export function render({model, el}) {
  const bar = dlMake("div", {class: "dl-bar"}), headline = dlMake("p", {class: "dl-headline", "aria-live": "polite"})
  const first = dlMake("b"), rest = dlMake("span"), details = dlMake("button", {type: "button", class: "dl-link", onclick: () => show()}, "Show what differs")
  const notice = dlMake("div", {class: "dl-differs"}, dlMake("p", {}, first, rest), details), root = dlMake("div", {class: "dl-comparison"}, bar, headline, notice)
  el.append(dlStyle(), root)
  const buttons = new Map()

  function show() {
    const [head, ...lines] = JSON.parse(model.content).table
    dlDialog(root, "What differs").append(dlMake("table", {class: "dl-table"},
      dlMake("thead", {}, dlMake("tr", {}, ...head.map((cell) => dlMake("th", {scope: "col"}, cell)))),
      dlMake("tbody", {}, ...lines.map(([name, ...cells]) => dlMake("tr", {}, dlMake("th", {scope: "row"}, name), ...cells.map((cell) => dlMake("td", {}, cell)))))))
  }

  function draw() {
    const content = JSON.parse(model.content)
    if (!content) return
    for (const {name, label, values, chosen} of content.bar) {
      if (!buttons.has(name)) {
        const group = values.map(([value, text]) => [value, dlMake("button", {type: "button", onclick: () => model.send_msg(JSON.stringify({name, value}))}, text)])
        bar.append(dlMake("span", {class: "choice"}, dlMake("span", {}, label), dlMake("span", {class: "seg", role: "group", "aria-label": label}, ...group.map(([, button]) => button))))
        buttons.set(name, new Map(group))
      }
      for (const [value, button] of buttons.get(name)) dlSay(button, {"aria-pressed": String(value === chosen)})
    }
    dlText(headline, content.headline)
    dlText(first, content.first)
    dlText(rest, content.rest)
    notice.hidden = !content.first
  }
  model.on("content", draw)
  draw()
}
