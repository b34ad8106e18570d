// The runs beside a comparison. Rows stay while their run is listed, so that the focus and a name that is typed stay too.
// Python side: run_list.py.

export function render({model, el}) {
  const tell = (message) => model.send_msg(JSON.stringify(message))
  const hint = dlMake("p", {class: "dl-hint"}), lists = dlMake("div"), rows = new Map(), groups = new Map()
  const find = dlMake("input", {type: "text", placeholder: "Find a run", "aria-label": "Find a run", oninput: () => filter()})
  el.append(dlStyle(), dlMake("section", {class: "dl-box dl-runs", "aria-label": "Runs"}, dlMake("h2", {}, "Runs"), hint, find, lists))

  function filter() {
    const words = find.value.toLowerCase().split(/\s+/)
    for (const {root, text} of rows.values()) root.hidden = !words.every((word) => text.includes(word))
  }

  function addRow(id) {
    const box = dlMake("input", {type: "checkbox", onchange: () => tell({tick: id, on: box.checked})})
    const swatch = dlMake("i", {class: "swatch"}), name = dlMake("span", {class: "name"}), detail = dlMake("small")
    const pen = dlMake("button", {type: "button", class: "pen", title: "Rename this run", onclick: () => edit()}, "✎")
    const root = dlMake("li", {}, box, swatch, dlMake("div", {}, name, pen, detail))
    const row = {root, box, swatch, name, pen, detail, text: "", given: ""}
    function edit() {
      const field = dlMake("input", {type: "text", "aria-label": "Name of the run", placeholder: name.textContent, value: row.given})
      let done = false
      const end = (isKept) => {
        if (done) return
        done = true
        field.replaceWith(name)
        if (isKept && field.value.trim() !== row.given) tell({rename: id, name: field.value.trim()})
        pen.focus()
      }
      field.addEventListener("keydown", (event) => {
        event.stopPropagation()
        if (event.key !== "Enter" && event.key !== "Escape") return
        event.preventDefault() // else Enter would press the button that gets the focus
        end(event.key === "Enter")
      })
      field.addEventListener("blur", () => end(true))
      name.replaceWith(field)
      field.focus()
      field.select()
    }
    rows.set(id, row)
    return row
  }

  function fill(row, {id, name, given, detail, ticked, disabled, colour, tone, tooltip}) {
    dlText(row.name, name)
    dlText(row.detail, detail)
    Object.assign(row, {given, text: `${name} ${detail} ${id}`.toLowerCase()})
    row.box.checked = ticked
    row.box.disabled = disabled
    dlSay(row.box, {"aria-label": `Compare ${name}`})
    dlSay(row.pen, {"aria-label": `Rename ${name}`})
    row.root.className = tone
    row.root.title = [tooltip, `Run ${id}`].filter((text) => text).join("\n")
    row.swatch.style.background = colour ? (dlIsDark(el) ? dlDarkened(colour) : colour) : ""
  }

  function groupOf(title, at) {
    if (!groups.has(title)) {
      const list = dlMake("ul"), count = dlMake("span")
      const root = dlMake("details", {open: at === 0}, dlMake("summary", {}, title, " ", count), list)
      groups.set(title, {root, list, count})
    }
    return groups.get(title)
  }

  function draw() {
    const content = JSON.parse(model.content) ?? {groups: [], hint: ""}
    dlText(hint, content.hint)
    const listed = new Set(content.groups.flatMap((group) => group.rows.map((row) => row.id)))
    for (const [id, row] of rows) if (!listed.has(id)) { row.root.remove(); rows.delete(id) }
    const roots = content.groups.map(({title, rows: some}, at) => {
      const group = groupOf(title, at)
      dlText(group.count, `(${some.length})`)
      const elements = some.map((each) => {
        const row = rows.get(each.id) ?? addRow(each.id)
        fill(row, each)
        return row.root
      })
      if (elements.length !== group.list.children.length || elements.some((each, place) => group.list.children[place] !== each)) group.list.replaceChildren(...elements)
      return group.root
    })
    if (roots.length !== lists.children.length || roots.some((each, place) => lists.children[place] !== each)) lists.replaceChildren(...roots)
    filter()
  }
  model.on("content", draw)
  window.addEventListener("dtdg-lab-theme", draw)
  model.on("remove", () => window.removeEventListener("dtdg-lab-theme", draw))
  draw()
}
