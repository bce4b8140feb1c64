/// Asks a compositor for one change at a time: what is still under way when the next one comes, or the broker ends, is ended.
final class CompositorAsking {
  private let compositor: Compositor
  private var program: ChildProgram?
  private var task: Task<Void, Never>?

  init(_ compositor: Compositor) { self.compositor = compositor }

  /// `answered` is called at most once, on any thread.
  func ask(_ appID: String?, answered: @escaping @Sendable (Bool) -> Void) {
    stop()
    switch compositor {
    case .none: answered(true)
    case .program(let program, let arguments):
      self.program = ChildProgram(program, arguments: arguments + (appID.map { [$0] } ?? []), ended: answered)
      if self.program == nil { answered(false) }
    case .function(let function): task = Task { answered(await function(appID)) }
    }
  }

  func stop() {
    program?.kill()
    task?.cancel()
    (program, task) = (nil, nil)
  }
}
