package import NIOCore
import NIOPosix

/// Where the work of a lane is done.
package enum LanePlace: Sendable {
  /// On an event loop, which many lanes share: for whoever has many of them.
  case eventLoop(any EventLoop)
  /// On a thread of its own, and on those that send: for whoever waits for answers. The thread asks for what comes so long before it sleeps, when that pays; zero
  /// is never. Tasks of the executor run there, too.
  case thread(LaneExecutor, pollTime: Duration)

  /// The process's event loops, in turn.
  package static var sharedEventLoop: LanePlace { .eventLoop(MultiThreadedEventLoopGroup.singleton.next()) }

  /// How long a thread asks before it sleeps, when nobody says: some times what a short call takes when neither side sleeps.
  package static let pollTime = Duration.microseconds(250)
}
