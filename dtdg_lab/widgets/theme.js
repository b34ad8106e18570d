// The choice of a theme, remembered by the browser; the dashboard around it gets that theme, and names for its controls.
// Loaded after visualization's theme.js and labels.js, before header.js.

const THEMES = {auto: "as the page", light: "light", dark: "dark"}
const KEPT = "dtdg-lab-theme"

const SHEET = `
:host {
  --color: var(--dl-text); --text-color: var(--dl-text); --background-color: var(--dl-field); --hover-color: var(--dl-back);
  --disabled-color: var(--dl-off-text); --disabled-background-color: var(--dl-off); --border-color: var(--dl-field-line);
  --divider-color: var(--dl-line); --placeholder-color: var(--dl-soft); --icon-color: var(--dl-soft);
  --surface-background-color: var(--dl-back); --surface-color: var(--dl-back); --surface-text-color: var(--dl-text);
  --background-text-color: var(--dl-text); --inverted-color: var(--dl-page); --outline-color: var(--dl-focus);
  color: var(--dl-text); color-scheme: var(--dl-scheme);
}
:focus-visible { outline: 2px solid var(--dl-focus) !important; outline-offset: 2px; }
.noUi-handle:focus-visible { outline-offset: 1px; }
.bk-input { background-color: var(--dl-field); color: var(--dl-text); }
.bk-input::placeholder { color: var(--dl-soft); opacity: 1; }
select[multiple].bk-input { padding: 4px 8px; }
.bk-input[disabled], input:disabled, select:disabled { background: var(--dl-off) !important; color: var(--dl-off-text) !important; opacity: 1; }
select.bk-input:not([multiple]) {
  background-image: linear-gradient(45deg, transparent 50%, var(--dl-text) 50%), linear-gradient(135deg, var(--dl-text) 50%, transparent 50%) !important;
  background-position: calc(100% - 12px) 50%, calc(100% - 7px) 50% !important; background-size: 5px 5px, 5px 5px !important; background-repeat: no-repeat !important;
}
select.bk-input:disabled { background-image: none !important; }
option, optgroup { background: var(--dl-field); color: var(--dl-text); }
.bk-tab { color: var(--dl-soft); }
.bk-tab.bk-active { color: var(--dl-text); background-color: var(--dl-page); font-weight: bold; }
.bk-btn.bk-btn-default { background: var(--dl-back) !important; color: var(--dl-text) !important; border: 1px solid var(--dl-field-line) !important; }
.bk-btn.bk-btn-default.bk-active { background: var(--dl-act) !important; color: var(--dl-on) !important; }
.bk-btn.bk-btn-primary { background: var(--dl-act) !important; color: var(--dl-on) !important; }
.bk-btn.bk-btn-success { background: var(--dl-go) !important; color: var(--dl-on) !important; }
.bk-btn.bk-btn-danger { background: var(--dl-halt) !important; color: var(--dl-on) !important; }
.bk-btn.bk-btn-warning { background: var(--dl-mend) !important; color: var(--dl-on) !important; }
.bk-btn[disabled] { background: var(--dl-off) !important; color: var(--dl-off-text) !important; opacity: 1; }
.noUi-target { background: var(--dl-back); border-color: var(--dl-field-line); box-shadow: none; }
.noUi-connect { background-color: var(--dl-line) !important; }
.noUi-handle { background: var(--dl-page); border-color: var(--dl-field-line); box-shadow: none; }
.noUi-tooltip { background: var(--dl-page); color: var(--dl-text); border-color: var(--dl-field-line); }
.card-header, .card-header-row { background-color: var(--dl-back) !important; color: var(--dl-text) !important; }
code { background: var(--dl-back); color: var(--dl-text); }
table, thead, tbody, tr, th, td { color: var(--dl-text); }
@media (prefers-reduced-motion: reduce) { * { transition: none !important; animation: none !important; } }
`

// JupyterLab, Notebook and VS Code say on the page's body what theme they have; of other pages the system decides
function pageIsDark() {
  const {jpThemeLight, vscodeThemeKind} = document.body.dataset
  if (jpThemeLight !== undefined) return jpThemeLight === "false"
  if (vscodeThemeKind !== undefined) return /dark|high-contrast$/.test(vscodeThemeKind)
  return dlOsDark.matches
}

function ownsPage() {
  const {jpThemeLight, vscodeThemeKind} = document.body.dataset
  return jpThemeLight === undefined && vscodeThemeKind === undefined
}

// a page in a frame without storage of its own has the choice as long as it lives
const store = (() => { try { return window.localStorage } catch { return {getItem: () => null, setItem: () => {}} } })()

function variablesOfThePage() {
  if (document.getElementById("dl-themes")) return
  const style = document.createElement("style")
  style.id = "dl-themes"
  style.textContent = Object.keys(DL_PAGE).map((theme) =>
    `[data-dl-theme=${theme}] { --dl-scheme: ${theme}; ${dlVariables(theme)} color: var(--dl-text); background-color: var(--dl-page); }`).join("\n")
  document.head.append(style)
}

// The theme of the layout around an element, and a choice of it
function dlThemes(el) {
  let top = null, end = () => {}, closed = false
  const chosen = () => { const kept = store.getItem(KEPT); return kept in THEMES ? kept : "auto" }
  const apply = () => {
    if (!top) return
    const theme = chosen() === "auto" ? (pageIsDark() ? "dark" : "light") : chosen()
    if (top.dataset.dlTheme === theme) return
    top.dataset.dlTheme = theme
    if (ownsPage()) document.documentElement.dataset.dlTheme = theme
    window.dispatchEvent(new CustomEvent("dtdg-lab-theme"))
  }
  const watched = new MutationObserver(apply)
  const begin = () => {
    if (!el.isConnected) { if (!closed) setTimeout(begin, 50); return }
    for (let host = el.getRootNode().host; host; host = host.getRootNode().host) top = host
    variablesOfThePage()
    const sheet = new CSSStyleSheet()
    sheet.replaceSync(SHEET)
    end = dlFollow(top, sheet)
    watched.observe(document.body, {attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"]})
    dlOsDark.addEventListener("change", apply)
    window.addEventListener("storage", apply) // chosen in another tab
    window.addEventListener("dtdg-lab-choice", apply) // or in another dashboard of this page
    apply()
  }
  begin()
  return {
    chosen,
    top: () => top,
    choose(theme) {
      store.setItem(KEPT, theme)
      window.dispatchEvent(new CustomEvent("dtdg-lab-choice"))
    },
    end() {
      closed = true
      end()
      watched.disconnect()
      dlOsDark.removeEventListener("change", apply)
      window.removeEventListener("storage", apply)
      window.removeEventListener("dtdg-lab-choice", apply)
    },
  }
}
