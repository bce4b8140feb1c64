import AppKinetics
import AppRuntime
import Locks

/// What the objects of the vendor's interface do with the launcher.
extension HostedApp {
  /// The launcher of the runtime; nil before the app was shown, and when none starts.
  var launcher: Launcher? { launcherState.withLock { attached(&$0) } }

  /// The state of the launcher, or of what stands in for it.
  var launcherModel: LauncherModel {
    launcherState.withLock { hosted in attached(&hosted)?.model ?? hosted.model }
  }

  /// The object that the app did not make; nil when no launcher starts.
  var managedLauncher: GTLauncherViewController? {
    configuration.startsLauncher ? launcherState.withLock { managed(&$0) } : nil
  }

  /// Changes the launcher, or what stands in for it. Returns why nothing has changed.
  @discardableResult
  func applyToLauncher(_ input: LauncherModel.Input) -> LauncherModel.Ignored? {
    launcherState.withLock { hosted in
      if let launcher = attached(&hosted) { return launcher.apply(input) }
      return hosted.apply(input)
    }
  }

  /// Keeps the object, and gives the model the name of its class.
  func setLauncherBase(_ base: AnyObject?) {
    keep(base, in: \.base)
    applyToLauncher(.setBase(base.map { "\(type(of: $0))" }))
  }

  /// Connects to the launcher of the runtime once the app was shown, and applies the inputs since
  /// the runtime was made. Called with the state locked.
  private func attached(_ hosted: inout HostedLauncher) -> Launcher? {
    if let launcher = hosted.launcher { return launcher }
    guard let launcher = state.withLock({ $0.runtime })?.launcher else { return nil }
    launcher.delegate = self
    for input in hosted.laterInputs { launcher.apply(input) }
    hosted.launcher = launcher
    followSettings(of: launcher)
    return launcher
  }

  /// Returns the managed object, and makes it at the first call. Called with the state locked.
  private func managed(_ hosted: inout HostedLauncher) -> GTLauncherViewController {
    let managed = hosted.managed ?? GTLauncherViewController(of: self)
    hosted.managed = managed
    return managed
  }

  /// Replaces an object. The old one is released with the state unlocked, because its `deinit` may
  /// use the launcher.
  private func keep(_ object: AnyObject?, in path: WritableKeyPath<HostedLauncher, AnyObject?>) {
    _ = launcherState.withLock { hosted in
      defer { hosted[keyPath: path] = object }
      return hosted[keyPath: path]
    }
  }

  // MARK: Settings

  /// Asks the delegate whenever the settings are presented, by the app or by a person, until the
  /// runtime stops.
  private func followSettings(of launcher: Launcher) {
    Task.detached { [weak self] in
      var arePresented = false
      for await model in launcher.changes where (model.presented == .settings) != arePresented {
        arePresented.toggle()
        self?.settingsChange(of: launcher, arePresented)
      }
    }
  }

  private func settingsChange(of launcher: Launcher, _ arePresented: Bool) {
    configuration.callbackQueue.async { [self] in
      guard arePresented else { return keep(nil, in: \.settings) }
      let shown = launcher.model.settings
      let lines = launcherState.withLock { hosted in
        // Lines that were set since the last time have no style yet.
        if shown != hosted.styledLines { hosted.lines = shown }
        return hosted.lines
      }
      let answer = tell("applicationSettingsTableViewController") { delegate, controller in
        let settings = object(delegate.applicationSettingsTableViewController(forLauncher: controller))
        let lines = lines.map { line in
          line.styled {
            delegate.commonSettingsCellConfiguration(for: $0, launcherViewController: controller)
          }
        }
        return (settings, lines)
      }
      keep(answer?.0, in: \.settings)
      let styledLines = answer?.1 ?? lines
      launcherState.withLock { $0.styledLines = styledLines }
      launcher.apply(.setSettings(styledLines))
    }
  }

  /// Calls the delegate. Returns nil without one. For the queue of callbacks alone.
  @discardableResult
  private func tell<R>(
    _ name: String, _ body: (any GTLauncherViewControllerDelegate, GTLauncherViewController) -> R
  ) -> R? {
    let told = launcherState.withLock { hosted in
      hosted.delegate.map { ($0, hosted.controller ?? managed(&hosted)) }
    }
    return told.map {
      configuration.onCallback?(GDCallback(name))
      return body($0.0, $0.1)
    }
  }
}

extension HostedApp: LauncherDelegate {
  func launcherWillOpen(_ launcher: Launcher) {
    tell("launcherViewControllerWillOpen") { $0.launcherViewControllerWillOpen($1) }
  }

  func launcherWillClose(_ launcher: Launcher) {
    tell("launcherViewControllerWillClose") { $0.launcherViewControllerWillClose($1) }
  }

  func launcher(
    _ launcher: Launcher, shouldLaunch application: ApplicationID, launch: @escaping @Sendable () -> Void
  ) -> Bool {
    tell("launcherViewController") {
      $0.launcherViewController($1, shouldExecuteOpenHandler: launch, atAddress: application.text)
    } ?? true
  }

  func launcher(_ launcher: Launcher, didSelectSectionAt location: String) {
    let section = tell("launcherViewController") {
      object($0.launcherViewController($1, viewControllerForLauncherSectionLocation: location))
    }
    keep(section ?? nil, in: \.section)
  }

  func launcher(_ launcher: Launcher, didSelectActionAt location: String) {
    tell("launcherViewController") {
      $0.launcherViewController($1, didSelectLocalActionWithLocation: location)
    }
  }

  func launcherChangesPassword(_ launcher: Launcher) { changePassword() }

  func launcher(_ launcher: Launcher, beforeUploadingLogs done: @escaping @Sendable () -> Void) {
    let isTold: Void? = tell("completeAdditionalProcessing") { delegate, _ in
      delegate.completeAdditionalProcessing(beforeUploadingLogs: done)
    }
    if isTold == nil { done() }
  }

  // The vendor's launcher sends such requests by itself, without its delegate.
  func launcher(
    _ launcher: Launcher, didSelect service: ServiceIdentifier, of providers: [ApplicationID]
  ) {
    configuration.logger.notice("a quick action has no receiver", metadata: ["service": "\(service.text)"])
  }

  func launcher(_ launcher: Launcher, didSelectSetting id: String) {
    configuration.logger.notice("a setting has no receiver", metadata: ["setting": "\(id)"])
  }
}

extension LauncherModel.Setting {
  /// The line with the icon of its style. Lines of the app's own have none, and stay as they are.
  fileprivate func styled(
    _ style: (GTLCommonSettingsCellType) -> GTLCommonSettingsCellConfiguration?
  ) -> Self {
    let type: GTLCommonSettingsCellType
    switch kind {
    case .changePassword: type = GTLCommonSettingsCellTypeChangePassword
    case .launcher: type = GTLCommonSettingsCellTypeLauncher
    case .uploadLogs: type = GTLCommonSettingsCellTypeUploadLogs
    case .own: return self
    }
    guard let style = style(type) else { return self }
    var line = self
    (line.icon, line.tint) = (style.icon, style.iconTintColor)
    return line
  }
}

/// The object in the result of a delegate, which may be an optional.
private func object(_ value: Any) -> AnyObject? {
  if let optional = value as? any Wrapping { return optional.object }
  return value as AnyObject
}

private protocol Wrapping {
  var object: AnyObject? { get }
}

extension Optional: Wrapping {
  fileprivate var object: AnyObject? { self.map { $0 as AnyObject } }
}
