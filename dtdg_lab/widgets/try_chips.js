// Suggestions under the picture: a click requests what a chip says. Python side: try_chips.py.

export function render({model, el}) {
  const label = dlMake("b"), row = dlMake("div", {class: "dl-try", role: "group", "aria-label": "Suggestions"}, label)
  el.append(dlStyle(), row)
  function draw() {
    const {words = "", chips = [], disabled = false} = JSON.parse(model.content) ?? {}
    dlText(label, words)
    const buttons = [...row.querySelectorAll("button")]
    buttons.slice(chips.length).forEach((button) => button.remove())
    chips.forEach((text, at) => {
      const button = buttons[at] ?? row.appendChild(dlMake("button", {type: "button", onclick: (event) => model.send_msg(JSON.stringify({text: event.currentTarget.textContent}))}))
      dlText(button, text)
      button.disabled = disabled
    })
  }
  model.on("content", draw)
  draw()
}
