import GD.AppKinetics
import GD.Runtime
import GD.SecureStore.File
import GD_C.SecureStore.SQLite

func olderLines() -> Bool {
  let type: AnyClass = GDFileHandle.self
  return type is NSObject.Type
}
