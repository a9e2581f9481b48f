// The page: a state (kept in the address), a model, an input, and eight panes of which one is shown.
import * as address from "./address.js"
import * as api from "./api.js"
import {button} from "./control.js"
import {element, uniqueId} from "./element.js"
import {payload, addExample, readFile, imageOf} from "./inputs.js"
import {capitalise} from "./pane.js"
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

const byId = id => document.getElementById(id)
let models = [], state = {controls: {}}, pane = null
const controlsByPane = {} // kept while another pane is shown

start()

async function start() {
  buildTabs()
  byId("panes").append(element("p", {class: "empty"}, "Loading the list of models…"))
  try {
    ({models} = await api.models())
    for (const model of models) model.examples = model.examples.map((example, place) =>
      addExample(example, `${model.name} ${place + 1}`))
  } catch (error) {
    return handleError(error)
  }
  byId("message").hidden = true
  if (!models.length) return void byId("panes").replaceChildren(element("p", {class: "empty"},
    "The server has no models. Train one, then start `seqlab serve` with its folder."))
  restore()
  addEventListener("hashchange", restore)
}

/** Show the state in the address; the default is the first model with its first example. */
function restore() {
  const params = address.read()
  if (params.model && !modelNamed(params.model)) showMessage(`There is no model '${params.model}' here.`,
    `Showing ${models[0].name} instead.`)
  const model = modelNamed(params.model) ?? models[0]
  state = {model: params.model && modelNamed(params.model) ? params.model : model.name,
    input: params.input ?? model.examples[0] ?? "",
    pane: PANES[params.pane] ? params.pane : "follow", controls: params.controls}
  address.write(state)
  draw()
  inputBar.input.value = state.input
}

/** A model by its name; NAME@CHECKPOINT has the facts of NAME. */
function modelNamed(name = "") {
  const found = models.find(model => model.name === name)
  if (found) return found
  const base = models.find(model => name.startsWith(`${model.name}@`))
  return base && {...base, name, base: base.name}
}

function change(part, {step = true} = {}) {
  if (part.pane && part.pane !== state.pane) {
    controlsByPane[state.pane] = state.controls
    state = {...state, controls: controlsByPane[part.pane] ?? {}, ...part}
  } else state = {...state, ...part}
  address.write(state, {step})
  draw()
}

function draw() {
  const model = modelNamed(state.model)
  drawInputBar(model)
  for (const tab of byId("tabs").children) {
    const chosen = tab.dataset.pane === state.pane
    tab.setAttribute("aria-selected", String(chosen))
    tab.tabIndex = chosen ? 0 : -1
    tab.classList.toggle("idle", Boolean(PANES[tab.dataset.pane][1].unavailable(model)))
  }
  const name = `seq-${state.pane}`
  if (pane?.localName !== name) {
    pane = element(name, {id: "pane", role: "tabpanel", "aria-labelledby": `tab-${state.pane}`, tabIndex: 0})
    byId("panes").replaceChildren(pane)
  }
  document.title = `${PANES[state.pane][0]}: ${model.name} · Seqlab`
  pane.update({
    model, models, input: state.input, payload: payload(state.input), controls: state.controls, handleError,
    set: (controls, options) => change({controls: {...state.controls, ...controls}}, {step: false, ...options}),
    go: (where, controls) => { controlsByPane[where] = controls; change({pane: where}) },
    use: name => change({model: name, controls: {}}),
    modelNamed, listOtherPanes: () => otherPanes(model),
  })
}

/** Buttons for the panes that apply to this model. */
function otherPanes(model) {
  const there = Object.entries(PANES).filter(([, [, kind]]) => !kind.unavailable(model))
  return element("p", {class: "row"}, "Panes for this model:",
    ...there.map(([name, [title]]) => button(title, `Show the pane ${title}.`, () => change({pane: name}))))
}

// ---------------------------------------------------------------------------------------------- model and input

let inputBar = null

function drawInputBar(model) {
  if (!inputBar) inputBar = buildInputBar()
  inputBar.model.value = model.base ?? model.name
  inputBar.about.textContent = `${model.base ? `Checkpoint ${model.name.split("@")[1]} of ${model.base}. ` : ""}`
    + `${model.about || model.recipe} ${Number(model.parameters).toLocaleString("en")} parameters, task ${model.task}.`
  if (inputBar.input !== document.activeElement) inputBar.input.value = state.input
  inputBar.input.placeholder = model.task === "lm" ? "beginning of the text" : "input of the model"
  if (inputBar.examplesOf !== model.name) {
    inputBar.examplesOf = model.name
    inputBar.examples.hidden = !model.examples.length
    inputBar.file.hidden = model.examples.length > 0 && !model.examples.some(imageOf)
    inputBar.examples.replaceChildren(element("span", {}, "Examples not used in training:"))
    inputBar.examples.append(...model.examples.map(example => {
      const text = String(example), seen = imageOf(text)
      return button(seen ? element("img", {src: seen, alt: text, height: 48})
        : element("bdi", {}, text.length > 48 ? `${text.slice(0, 46)}…` : text), `Use as input: ${text}`,
        () => { inputBar.input.value = text; change({input: text}) }, {class: "chip"})
    }))
  }
}

function buildInputBar() {
  const about = element("small", {id: uniqueId("about")})
  const model = element("select", {id: uniqueId("model"), "aria-describedby": about.id, onchange: event => {
    const [chosen, before] = [modelNamed(event.target.value), modelNamed(state.model)]
    const typed = state.input && !before.examples.includes(state.input)
    const input = typed && chosen.task === before.task ? state.input : chosen.examples[0] ?? ""
    change({model: chosen.name, input, controls: {}})
  }}, ...models.map(each => element("option", {value: each.name}, each.name)))
  const hint = element("small", {id: uniqueId("hint")},
    "The input of the model. Press Enter or Show to update the pane below.")
  const input = element("textarea", {id: uniqueId("input"), rows: 1, dir: "auto", spellcheck: false,
    "aria-describedby": hint.id,
    onkeydown: event => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); look() } }})
  const look = () => change({input: input.value})
  const examples = element("p", {class: "row examples"})
  const choose = element("input", {type: "file", accept: "image/*,.csv,.tsv,.json,.txt", id: uniqueId("file"),
    title: "Use the content of a file as input. The file is read by the browser; the server gets numbers or text.",
    onchange: async event => change({input: await readFile(event.target.files[0])})})
  const file = element("p", {class: "row examples"}, element("label", {htmlFor: choose.id},
    "Or open a file: a picture, a table, or rows of numbers."), choose)
  byId("input-bar").replaceChildren(
    element("div", {class: "control"}, element("label", {htmlFor: model.id}, "Model"), model, about),
    element("form", {class: "control", onsubmit: event => { event.preventDefault(); look() }},
      element("label", {htmlFor: input.id}, "Input"),
      element("span", {class: "beside"}, input, element("button", {class: "main"}, "Show")), hint), examples, file)
  byId("tools").replaceChildren(
    button("Copy link", "Copy a link to this view.", copyLink),
    button("Save this view", "Download this view as one HTML file.", save))
  return {model, about, input, examples, file, examplesOf: null}
}

// ------------------------------------------------------------------------------------------------------ tabs

function buildTabs() {
  const tabs = Object.entries(PANES).map(([name, [title]]) => element("button", {
    type: "button", role: "tab", id: `tab-${name}`, "data-pane": name, "aria-controls": "pane", tabIndex: -1,
    onclick: () => { if (models.length) change({pane: name}) },
  }, title))
  byId("tabs").replaceChildren(...tabs)
  byId("tabs").addEventListener("keydown", event => {
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

let hideTimer

function showMessage(sentence, hint = "") {
  const box = byId("message")
  box.replaceChildren(sentence, hint ? element("small", {}, ` ${hint}`) : "")
  box.hidden = false
  clearTimeout(hideTimer)
  hideTimer = setTimeout(() => { box.hidden = true }, 6000)
}

/** Show an error of the server; if it needs a token, ask for it and keep it while the tab is open. */
function handleError(error) {
  if (error.status !== 401) {
    if (!models.length) byId("panes").replaceChildren(element("p", {class: "empty error"},
      `${capitalise(error.message)}. ${capitalise(error.hint ?? "")}`))
    return
  }
  const box = element("input", {type: "password", autocomplete: "off", "aria-label": "token"})
  byId("panes").replaceChildren(element("form", {class: "empty row", onsubmit: event => {
    event.preventDefault()
    sessionStorage.setItem("token", box.value)
    location.reload()
  }}, element("p", {}, "This server needs a token. It was printed when the server started."), box,
    element("button", {class: "main"}, "Log in")))
}

async function copyLink() {
  await navigator.clipboard.writeText(location.href).then(
    () => showMessage("The link is copied."), () => showMessage("The browser does not allow copying.",
      "Copy the address from the address bar."))
}

async function save() {
  const viewToSave = pane?.viewToSave()
  if (!viewToSave) return showMessage("This pane has no view to save.",
    "Follow, Attention, Beam, Inside and What if have one.")
  try {
    const body = {model: state.model, input: payload(state.input), options: viewToSave.options}
    const link = element("a", {href: URL.createObjectURL(await api.file(viewToSave.view, body, "html")),
      download: `${state.model}-${viewToSave.view}.html`})
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 10000)
  } catch (error) {
    if (!(error instanceof api.ServerError)) throw error
    showMessage(`${capitalise(error.message)}.`, error.hint)
  }
}
