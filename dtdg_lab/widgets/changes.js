// The log of changes: numbers here are those of the chips in the charts. Python side: changes.py.

export function render({model, el}) {
  const list = dlMake("ol", {class: "dl-log", "aria-live": "polite", "aria-relevant": "additions text", reversed: true})
  const hint = dlMake("p", {class: "dl-hint"})
  const all = dlMake("button", {type: "button", class: "dl-link", onclick: () => window.dispatchEvent(new CustomEvent("dtdg-lab-effects"))})
  el.append(dlStyle(), dlMake("section", {class: "dl-box dl-changes", "aria-label": "Changes"}, dlMake("h2", {}, "Changes"), hint, list, all))
  const entries = new Map()

  function add(number) {
    const what = dlMake("div"), meta = dlMake("span"), note = dlMake("div", {class: "note"})
    const undo = dlMake("button", {type: "button", class: "dl-link", "aria-label": `Undo change ${number}`, onclick: () => model.send_msg(JSON.stringify({undo: number}))}, "Undo")
    const chip = dlMake("button", {type: "button", class: "number", title: "Show it in the charts", "aria-label": `Change ${number}: show it in the charts`, onclick: () => window.dispatchEvent(new CustomEvent("dtdg-lab-flash", {detail: number}))},
      dlMake("span", {class: "dl-number"}, String(number)))
    const root = dlMake("li", {"data-number": number}, chip, dlMake("div", {}, what, dlMake("div", {class: "meta"}, meta, undo), note))
    const entry = {root, what, meta, note, undo}
    entries.set(number, entry)
    return entry
  }

  function draw() {
    const content = JSON.parse(model.content) ?? {entries: [], hint: "", more: ""}
    dlText(hint, content.hint)
    dlText(all, content.more)
    all.hidden = !content.more
    for (const [number, entry] of entries) if (!content.entries.some((each) => each.number === number)) { entry.root.remove(); entries.delete(number) }
    content.entries.forEach(({number, changes, meta, note, state, undo}, at) => {
      const entry = entries.get(number) ?? add(number)
      const text = JSON.stringify(changes)
      if (entry.text !== text) {
        entry.text = text
        entry.what.replaceChildren(...changes.flatMap(([name, values], place) => [place ? ", " : "", dlMake("b", {}, name), ` ${values}`]))
      }
      dlText(entry.meta, meta)
      dlText(entry.note, note)
      entry.note.hidden = !note
      entry.undo.hidden = !undo
      entry.root.className = state.replace(" ", "-")
      if (list.children[at] !== entry.root) list.insertBefore(entry.root, list.children[at] ?? null)
    })
  }

  const onFind = ({detail}) => {
    const entry = entries.get(detail)
    if (!entry) return
    for (const each of entries.values()) each.root.classList.remove("found")
    entry.root.classList.add("found")
    entry.root.scrollIntoView({block: "nearest"})
    entry.root.querySelector("button").focus({preventScroll: true})
  }
  window.addEventListener("dtdg-lab-change", onFind)
  model.on("content", draw)
  model.on("remove", () => window.removeEventListener("dtdg-lab-change", onFind))
  draw()
}
