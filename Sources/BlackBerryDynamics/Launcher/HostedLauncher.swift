import AppRuntime

/// The state that all objects of the vendor's interface share about the launcher.
struct HostedLauncher {
  /// The launcher of the runtime, once the app was shown.
  var launcher: Launcher?
  /// The state before that, from which set values are read back.
  private(set) var model = LauncherModel()
  /// The inputs that have changed ``model``, in order.
  private var inputs: [LauncherModel.Input] = []
  /// The number of inputs that the runtime was made with.
  private var givenCount = 0

  weak var delegate: (any GTLauncherViewControllerDelegate)?
  /// The object through which the delegate was set.
  weak var controller: GTLauncherViewController?
  var managed: GTLauncherViewController?
  var base: AnyObject?
  var section: AnyObject?
  var settings: AnyObject?
  /// The lines of the settings before the delegate's styles.
  var lines: [LauncherModel.Setting] = []
  /// The lines with the styles, as they were given to the model last.
  var styledLines: [LauncherModel.Setting]?

  init(_ inputs: [LauncherModel.Input]) { for input in inputs { _ = apply(input) } }

  /// Changes ``model``. An input that changes something is kept.
  mutating func apply(_ input: LauncherModel.Input) -> LauncherModel.Ignored? {
    let ignored = model.apply(input).ignored
    if ignored == nil { inputs.append(input) }
    return ignored
  }

  /// All inputs so far, for a runtime that is made now.
  mutating func inputsToBeginWith() -> [LauncherModel.Input] {
    givenCount = inputs.count
    return inputs
  }

  /// The inputs since then.
  var laterInputs: ArraySlice<LauncherModel.Input> { inputs[givenCount...] }
}
