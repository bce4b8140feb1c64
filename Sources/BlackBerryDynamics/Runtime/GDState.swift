/// How the app is: whether it is authorized, and what is on the screen.
///
/// `GDiOS.state` has the state of now. A copy in the notification `GDStateChange` keeps the values
/// that it was made with. Properties are not observed by keys and values (KVO).
public final class GDState: NSObject, Sendable {
  /// The values of all properties.
  struct Values: Sendable, Equatable {
    var isAuthorized = false
    var reasonNotAuthorized = GDAppResultCode.errorNone
    var userInterfaceState = GDUserInterfaceState.GDUIStateNone
    var currentScreen = GDLibraryScreen.none
    var activationState = BBDActivationState.notActivated

    /// The names of the properties that are different, in a fixed order.
    func names(differingFrom other: Values) -> [String] {
      var names: [String] = []
      if activationState != other.activationState { names.append(BBDKeyActivationState) }
      if isAuthorized != other.isAuthorized { names.append(GDKeyIsAuthorized) }
      if reasonNotAuthorized != other.reasonNotAuthorized { names.append(GDKeyReasonNotAuthorized) }
      if userInterfaceState != other.userInterfaceState { names.append(GDKeyUserInterfaceState) }
      if currentScreen != other.currentScreen { names.append(GDKeyCurrentScreen) }
      return names
    }
  }

  static let live = GDState(nil)

  /// Nil: the state of now.
  private let kept: Values?

  init(_ values: Values?) { kept = values }

  private var values: Values { kept ?? HostedApp.current.values }

  /// Whether files and services work. It stays true while the app is idle or blocked by itself:
  /// nothing may be shown then, and work in the background goes on.
  public var isAuthorized: Bool { values.isAuthorized }

  /// The reason why the app is not authorized or not shown; `errorNone` without one.
  public var reasonNotAuthorized: GDAppResultCode { values.reasonNotAuthorized }

  /// What belongs on the screen. The library is in front while a person is asked for something.
  public var userInterfaceState: GDUserInterfaceState { values.userInterfaceState }

  /// What the library shows; `none` unless the library is in front.
  public var currentScreen: GDLibraryScreen { values.currentScreen }

  /// How far the app is set up.
  public var activationState: BBDActivationState { values.activationState }

  /// Descriptions of the steps of an activation. There are no steps here: it is empty.
  public var activationProcessingDescriptions: [String] { [] }

  /// The step of the activation that is under way: 0.
  public var activationProcessingIndex: UInt { 0 }
}
