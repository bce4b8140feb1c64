import ArgumentParser
import Identifiers

struct DynamicsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "dynamics",
    abstract:
      "Keeps files in encrypted containers, sends them from one app's container to another's, and runs the broker of apps.",
    discussion: """
      DIR is the directory of a container, CONTAINER:/path a place in one. A passphrase comes from --passphrase-file, from the environment variable \
      DYNAMICS_PASSPHRASE, or from the terminal; a raw key of 32 bytes from --key-file.
      """,
    version: "dynamics \(version)",
    subcommands: [
      ContainerCommand.self, PutCommand.self, GetCommand.self, ListCommand.self, StatusCommand.self,
      DiskUsageCommand.self, FindCommand.self, TreeCommand.self, CatCommand.self, AppendCommand.self,
      MakeDirectoryCommand.self, CopyCommand.self, LinkCommand.self, MoveCommand.self, RemoveCommand.self,
      SendCommand.self, InboxCommand.self, OutboxCommand.self, BrokerCommand.self, AppCommand.self,
      ManageCommand.self,
      PeersCommand.self, AppsCommand.self, FrontCommand.self, LauncherCommand.self, ServicesCommand.self,
      PushCommand.self,
      DoctorCommand.self, BenchCommand.self,
    ],
    // -h is the matter of CommandArguments.
    helpNames: .long)

  static let version = programVersion
}

struct ContainerCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "container",
    abstract: "Makes, describes and checks containers, and changes their keys.",
    subcommands: [
      CreateCommand.self, InfoCommand.self, VerifyCommand.self, CompactCommand.self, BackupCommand.self,
      RepairCommand.self, DestroyCommand.self,
      KeyCommand.self,
      ChangePassphraseCommand.self,
    ])
}
