// Light and dark pages: which one a page is, and figures drawn for it. The kernel makes figures in light colours.
// theme.py puts two constants before this: DL_DARK (light colour -> dark one) and DL_PAGE (theme -> name -> colour).

const dlOsDark = window.matchMedia("(prefers-color-scheme: dark)")
const dlLinear = (share) => share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
const dlCoded = (share) => share <= 0.0031308 ? 12.92 * share : 1.055 * share ** (1 / 2.4) - 0.055

// The same hue with its lightness mirrored, so that what stood out from white stands out from the dark page (OKLab,
// Ottosson 2020); less saturated where the screen has no such colour
function dlMirrored(red, green, blue) {
  const [r, g, b] = [red, green, blue].map((value) => dlLinear(value / 255))
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
  const light = 0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s
  const across = 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s
  const along = 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s
  const mirrored = Math.min(1, Math.max(0, 1.195 - 0.96 * light))
  for (let share = 1; ; share -= 0.05) {
    const a = Math.max(share, 0) * across, o = Math.max(share, 0) * along
    const cones = [
      mirrored + 0.3963377774 * a + 0.2158037573 * o, mirrored - 0.1055613458 * a - 0.0638541728 * o,
      mirrored - 0.0894841775 * a - 1.291485548 * o,
    ].map((value) => value ** 3)
    const found = [
      4.0767416621 * cones[0] - 3.3077115913 * cones[1] + 0.2309699292 * cones[2],
      -1.2684380046 * cones[0] + 2.6097574011 * cones[1] - 0.3413193965 * cones[2],
      -0.0041960863 * cones[0] - 0.7034186147 * cones[1] + 1.707614701 * cones[2],
    ]
    if (share <= 0 || found.every((value) => value >= -0.001 && value <= 1.001)) {
      return found.map((value) => Math.round(255 * dlCoded(Math.min(1, Math.max(0, value)))))
    }
  }
}

const dlNamed = {white: "#FFFFFF", black: "#000000"}

// A colour of a light figure in the dark theme; what is no colour is given back
function dlDarkened(colour) {
  const text = (dlNamed[colour.toLowerCase()] ?? colour).toUpperCase()
  if (DL_DARK[text]) return DL_DARK[text]
  const hex = /^#([0-9A-F]{3}|[0-9A-F]{6})$/.exec(text)
  if (hex) {
    const digits = hex[1].length === 3 ? [...hex[1]].map((digit) => digit + digit).join("") : hex[1]
    const parts = dlMirrored(...[0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16)))
    return "#" + parts.map((part) => part.toString(16).padStart(2, "0")).join("").toUpperCase()
  }
  const given = /^RGBA?\(([^)]*)\)$/.exec(text)
  if (!given) return colour
  const [red, green, blue, ...alpha] = given[1].split(",").map(Number)
  if (alpha[0] === 0) return colour
  const solid = "#" + [red, green, blue].map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")
  const made = dlDarkened(solid), parts = [1, 3, 5].map((at) => parseInt(made.slice(at, at + 2), 16))
  return `rgba(${[...parts, alpha[0] ?? 1].join(",")})`
}

const dlIsColour = (key) => /color(scale|way)?$/i.test(key)
const dlWords = (text) => text.replace(/(color:\s*)(#[0-9a-f]{6})/gi, (_, before, colour) => before + dlDarkened(colour))

// A figure, or a part of one, in the dark theme; numbers and what is not told by a colour's name stay the same object
function dlDarkPart(part, key = "") {
  if (typeof part === "string") return dlIsColour(key) ? dlDarkened(part) : key === "text" ? dlWords(part) : part
  if (Array.isArray(part)) {
    if (!dlIsColour(key) && key !== "text" && typeof part[0] !== "object") return part
    return part.map((each) => dlDarkPart(each, key))
  }
  if (part === null || typeof part !== "object") return part
  return Object.fromEntries(Object.entries(part).map(([name, each]) => [name, dlDarkPart(each, name)]))
}

const dlFigure = (figure, dark) => dark ? {...figure, data: dlDarkPart(figure.data), layout: dlDarkPart(figure.layout)} : figure

// The variables of a theme as CSS
const dlVariables = (theme) => Object.entries(DL_PAGE[theme]).map(([name, colour]) => `--dl-${name}: ${colour};`).join(" ")
