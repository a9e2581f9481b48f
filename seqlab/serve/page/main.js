// The page: one state (which is its address), a model, an input, eight panes of which one is shown.
import * as address from "./address.js"
import * as api from "./api.js"
import {button} from "./control.js"
import {element, fresh} from "./element.js"
import {given, offered, open, pictured} from "./given.js"
import {capital} from "./pane.js"
import {AttentionPane} from "./attention.js"
import {BeamPane} from "./beam.js"
import {ComparePane} from "./compare.js"
import {DecodePane} from "./decode.js"
import {FollowPane} from "./follow.js"
import {InsidePane} from "./inside.js"
import {TrainingPane} from "./training.js"
import {WhatIfPane} from "./what_if.js"

const PANES = {
  follow: ["Follow", FollowPane], decode: ["Decode", DecodePane], attention: ["Attention", AttentionPane],
  beam: ["Beam", BeamPane], inside: ["Inside", InsidePane], "what-if": ["What if", WhatIfPane],
  compare: ["Compare", ComparePane], training: ["Training", TrainingPane],
}
for (const [name, [, kind]] of Object.entries(PANES)) customElements.define(`seq-${name}`, kind)

const find = id => document.getElementById(id)
let models = [], state = {controls: {}}, pane = null
const kept = {} // the controls of each pane, while another is shown

begin()

async function begin() {
  buildTabs()
  find("panes").append(element("p", {class: "empty"}, "Asking the server for its models…"))
  try {
    ({models} = await api.models())
    for (const model of models) model.examples = model.examples.map((example, place) =>
      offered(example, `${model.name} ${place + 1}`))
  } catch (error) {
    return denied(error)
  }
  find("message").hidden = true
  if (!models.length) return void find("panes").replaceChildren(element("p", {class: "empty"},
    "The server has no model. Train one, then start `seqlab serve` with its folder."))
  restore()
  addEventListener("hashchange", restore)
}

/** The state that the address asks for; where it asks for nothing, the first model with its first example. */
function restore() {
  const said = address.read()
  if (said.model && !named(said.model)) say(`There is no model '${said.model}' here.`,
    `Showing ${models[0].name} instead.`)
  const model = named(said.model) ?? models[0]
  state = {model: said.model && named(said.model) ? said.model : model.name,
    input: said.input ?? model.examples[0] ?? "",
    pane: PANES[said.pane] ? said.pane : "follow", controls: said.controls}
  address.write(state)
  draw()
  asked.input.value = state.input
}

/** A model by its name; a checkpoint of one (name@checkpoint) is like it in all else. */
function named(name = "") {
  const found = models.find(model => model.name === name)
  if (found) return found
  const base = models.find(model => name.startsWith(`${model.name}@`))
  return base && {...base, name, base: base.name}
}

function change(part, {step = true} = {}) {
  if (part.pane && part.pane !== state.pane) {
    kept[state.pane] = state.controls
    state = {...state, controls: kept[part.pane] ?? {}, ...part}
  } else state = {...state, ...part}
  address.write(state, {step})
  draw()
}

function draw() {
  const model = named(state.model)
  drawAsked(model)
  for (const tab of find("tabs").children) {
    const chosen = tab.dataset.pane === state.pane
    tab.setAttribute("aria-selected", String(chosen))
    tab.tabIndex = chosen ? 0 : -1
    tab.classList.toggle("idle", Boolean(PANES[tab.dataset.pane][1].refuses(model)))
  }
  const name = `seq-${state.pane}`
  if (pane?.localName !== name) {
    pane = element(name, {id: "pane", role: "tabpanel", "aria-labelledby": `tab-${state.pane}`, tabIndex: 0})
    find("panes").replaceChildren(pane)
  }
  document.title = `${PANES[state.pane][0]}: ${model.name} · Seqlab`
  pane.update({
    model, models, input: state.input, given: given(state.input), controls: state.controls, denied,
    set: (controls, options) => change({controls: {...state.controls, ...controls}}, {step: false, ...options}),
    go: (where, controls) => { kept[where] = controls; change({pane: where}) },
    use: name => change({model: name, controls: {}}),
    named, others: () => otherPanes(model),
  })
}

/** What a person can look at instead, in a sentence with buttons. */
function otherPanes(model) {
  const there = Object.entries(PANES).filter(([, [, kind]]) => !kind.refuses(model))
  return element("p", {class: "row"}, "For this model there are:",
    ...there.map(([name, [title]]) => button(title, `Show the pane ${title}.`, () => change({pane: name}))))
}

// ---------------------------------------------------------------------------------------------- model and input

let asked = null

function drawAsked(model) {
  if (!asked) asked = buildAsked()
  asked.model.value = model.base ?? model.name
  asked.about.textContent = `${model.base ? `Checkpoint ${model.name.split("@")[1]} of ${model.base}. ` : ""}`
    + `${model.about || model.recipe} ${Number(model.parameters).toLocaleString("en")} parameters, task ${model.task}.`
  if (asked.input !== document.activeElement) asked.input.value = state.input
  asked.input.placeholder = model.task === "lm" ? "how the text begins" : "what the model reads"
  if (asked.examplesOf !== model.name) {
    asked.examplesOf = model.name
    asked.examples.hidden = !model.examples.length
    asked.file.hidden = model.examples.length > 0 && !model.examples.some(pictured)
    asked.examples.replaceChildren(element("span", {}, "Examples it has not trained on:"))
    asked.examples.append(...model.examples.map(example => {
      const text = String(example), seen = pictured(text)
      return button(seen ? element("img", {src: seen, alt: text, height: 48})
        : element("bdi", {}, text.length > 48 ? `${text.slice(0, 46)}…` : text), `Look at: ${text}`,
        () => { asked.input.value = text; change({input: text}) }, {class: "chip"})
    }))
  }
}

function buildAsked() {
  const about = element("small", {id: fresh("about")})
  const model = element("select", {id: fresh("model"), "aria-describedby": about.id, onchange: event => {
    const [chosen, before] = [named(event.target.value), named(state.model)]
    const own = state.input && chosen.task === before.task && !before.examples.includes(state.input) // typed: stays
    change({model: chosen.name, input: own ? state.input : chosen.examples[0] ?? "", controls: {}})
  }}, ...models.map(each => element("option", {value: each.name}, each.name)))
  const hint = element("small", {id: fresh("hint")},
    "What the model reads. Enter, or Look, shows it in the pane below.")
  const input = element("textarea", {id: fresh("input"), rows: 1, dir: "auto", spellcheck: false,
    "aria-describedby": hint.id,
    onkeydown: event => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); look() } }})
  const look = () => change({input: input.value})
  const examples = element("p", {class: "row examples"})
  const choose = element("input", {type: "file", accept: "image/*,.csv,.tsv,.json,.txt", id: fresh("file"),
    title: "Give the model what a file holds; it is read here, and the server is sent numbers or text.",
    onchange: async event => change({input: await open(event.target.files[0])})})
  const file = element("p", {class: "row examples"}, element("label", {htmlFor: choose.id},
    "Or open a file: a picture, a table, rows of numbers."), choose)
  find("asked").replaceChildren(
    element("div", {class: "control"}, element("label", {htmlFor: model.id}, "Model"), model, about),
    element("form", {class: "control", onsubmit: event => { event.preventDefault(); look() }},
      element("label", {htmlFor: input.id}, "Input"),
      element("span", {class: "beside"}, input, element("button", {class: "main"}, "Look")), hint), examples, file)
  find("tools").replaceChildren(
    button("Copy link", "Copy the address of exactly this view, to share it or come back to it.", copyLink),
    button("Save this view", "Download what is shown as one HTML file that needs nothing else.", save))
  return {model, about, input, examples, file, examplesOf: null}
}

// ------------------------------------------------------------------------------------------------------ tabs

function buildTabs() {
  const tabs = Object.entries(PANES).map(([name, [title]]) => element("button", {
    type: "button", role: "tab", id: `tab-${name}`, "data-pane": name, "aria-controls": "pane", tabIndex: -1,
    onclick: () => { if (models.length) change({pane: name}) },
  }, title))
  find("tabs").replaceChildren(...tabs)
  find("tabs").addEventListener("keydown", event => {
    const at = tabs.indexOf(document.activeElement)
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1}[event.key]
    if (to === undefined || at < 0) return
    event.preventDefault()
    const tab = tabs[(to + tabs.length) % tabs.length]
    tab.focus()
    tab.click()
  })
}

// ---------------------------------------------------------------------------------------------------- messages

let quiet

function say(sentence, hint = "") {
  const box = find("message")
  box.replaceChildren(sentence, hint ? element("small", {}, ` ${hint}`) : "")
  box.hidden = false
  clearTimeout(quiet)
  quiet = setTimeout(() => { box.hidden = true }, 6000)
}

/** What the server refused. Where it wants to know who asks, ask for the token and keep it while the tab is open. */
function denied(error) {
  if (error.status !== 401) {
    if (!models.length) find("panes").replaceChildren(element("p", {class: "empty error"},
      `${capital(error.message)}. ${capital(error.hint ?? "")}`))
    return
  }
  const box = element("input", {type: "password", autocomplete: "off", "aria-label": "token"})
  find("panes").replaceChildren(element("form", {class: "empty row", onsubmit: event => {
    event.preventDefault()
    sessionStorage.setItem("token", box.value)
    location.reload()
  }}, element("p", {}, "This server asks for its token: it was printed when the server started."), box,
    element("button", {class: "main"}, "Use it")))
}

async function copyLink() {
  await navigator.clipboard.writeText(location.href).then(
    () => say("The link is copied."), () => say("The browser does not let the page copy.",
      "Copy the address from its bar."))
}

async function save() {
  const saved = pane?.saved()
  if (!saved) return say("This pane has no view of its own to save.",
    "Follow, Attention, Beam, Inside and What if have.")
  try {
    const body = {model: state.model, input: given(state.input), options: saved.options}
    const link = element("a", {href: URL.createObjectURL(await api.file(saved.view, body, "html")),
      download: `${state.model}-${saved.view}.html`})
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 10000)
  } catch (error) {
    if (!(error instanceof api.Refusal)) throw error
    say(`${capital(error.message)}.`, error.hint)
  }
}
